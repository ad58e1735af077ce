"""Under a limit never more run at once, whatever becomes of the limit."""

from __future__ import annotations

from async_processor.admission.limits import (
    in_flight_limit,
)


def test_a_share_of_the_workers_is_not_lost_to_rounding() -> None:
    assert in_flight_limit(0.29, 100) == 29
    assert in_flight_limit(0.999, 100) == 99
    assert in_flight_limit(0.0, 100) == 0
    assert in_flight_limit(1.0, 100) is None
