"""Under a limit never more run at once, whatever becomes of the limit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from async_processor.admission.limits import (
    InFlightAllowance,
    in_flight_limit,
)


@given(st.integers(0, 20), st.lists(st.booleans(), max_size=60))
def test_never_more_in_flight_than_the_limit(limit: int, takes: list[bool]) -> None:
    slots, running = InFlightAllowance(limit), 0
    for take in takes:
        if take:
            running += slots.take()
        elif running:
            slots.give_back()
            running -= 1
        assert slots.in_flight == running <= limit
        assert slots.available() == limit - running


def test_a_limit_that_falls_below_what_runs_lets_nothing_start_until_enough_has_ended() -> None:
    slots = InFlightAllowance(3)
    assert [slots.take() for _ in range(4)] == [True, True, True, False]
    slots.limit = 2
    slots.give_back()
    assert not slots.take()
    slots.give_back()
    assert slots.take()
    slots.limit = None
    assert all(slots.take() for _ in range(100))


def test_a_share_of_the_workers_is_not_lost_to_rounding() -> None:
    assert in_flight_limit(0.29, 100) == 29
    assert in_flight_limit(0.999, 100) == 99
    assert in_flight_limit(0.0, 100) == 0
    assert in_flight_limit(1.0, 100) is None
