"""The wait before a retry: the contract's ranges, and never past the deadline."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_processor.settlement.retry import backoff, due_at
from async_processor.settlement.settings import RetrySettings

SETTINGS = RetrySettings(base_delay=2.0, max_delay=60.0)
unit = st.floats(0, 1, exclude_max=True)


@pytest.mark.parametrize(
    ("retry", "low", "high"), [(1, 2, 4), (2, 4, 8), (3, 8, 16), (4, 16, 32), (5, 30, 60)]
)
def test_waits_lie_in_the_upper_half_of_the_doubling_delay(
    retry: int, low: float, high: float
) -> None:
    assert backoff(retry, SETTINGS, lambda: 0.0) == low
    assert low <= backoff(retry, SETTINGS, lambda: 0.999999) < high


@given(retry=st.integers(5, 10**9), draw=unit)
def test_the_cap_holds_for_any_number_of_retries(retry: int, draw: float) -> None:
    assert 30 <= backoff(retry, SETTINGS, lambda: draw) <= 60


@given(
    left=st.floats(0, 1e6),
    retry=st.integers(1, 100),
    retry_after=st.none() | st.floats(0, 1e9),
    draw=unit,
)
def test_a_retry_is_never_due_after_the_deadline_nor_before_now(
    left: float, retry: int, retry_after: float | None, draw: float
) -> None:
    now = 1_764_000_000.0
    due = due_at(
        now=now,
        deadline=now + left,
        retry=retry,
        retry_after=retry_after,
        settings=SETTINGS,
        random=lambda: draw,
    )
    assert now <= due <= now + left


def _wait(retry_after: float, left: float, draw: float) -> float:
    return due_at(
        now=0.0,
        deadline=left,
        retry=1,
        retry_after=retry_after,
        settings=SETTINGS,
        random=lambda: draw,
    )


def test_a_longer_retry_after_wins_with_jitter_on_top() -> None:
    assert _wait(20, left=1000, draw=0.0) == 20
    assert _wait(20, left=1000, draw=0.8) == pytest.approx(24)


def test_a_shorter_retry_after_does_not_shorten_the_backoff() -> None:
    assert _wait(1, left=1000, draw=0.5) == 3


def test_retry_after_takes_at_most_half_of_the_time_that_is_left() -> None:
    assert _wait(500, left=100, draw=0.5) == 50
