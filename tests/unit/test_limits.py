"""Under a budget as many start as it allows: never more, in the long run not fewer, no bursts."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_processor.admission.limits import (
    InFlightAllowance,
    StartAllowance,
    in_flight_limit,
    start_limit,
)

budgets = st.floats(0, 1, exclude_max=True)
pool_sizes = st.integers(1, 300)


def drain(allowance: StartAllowance, now: float, demand: int = 10_000) -> int:
    """Start as many as may start."""
    started = 0
    while started < demand and allowance.take(now):
        started += 1
    return started


def limited(budget: float, workers: int) -> float:
    starts = start_limit(budget, workers)
    assert starts is not None
    return starts


@given(st.lists(budgets, min_size=1, max_size=60), pool_sizes)
def test_in_the_long_run_as_many_start_as_the_readings_allowed(
    readings: list[float], workers: int
) -> None:
    allowance, allowed, started = StartAllowance(), 0.0, 0
    for moment, budget in enumerate(readings):
        allowance.renew(limited(budget, workers), taken_at=moment)
        allowed += limited(budget, workers)
        started += drain(allowance, moment)
        assert allowed - 1.001 <= started <= allowed + 0.001


@given(st.lists(st.tuples(budgets, st.integers(0, 50)), min_size=1, max_size=60), pool_sizes)
def test_no_demand_gets_more_than_one_reading_allows(
    steps: list[tuple[float, int]], workers: int
) -> None:
    allowance = StartAllowance()
    for moment, (budget, demand) in enumerate(steps):
        starts = limited(budget, workers)
        allowance.renew(starts, taken_at=moment)
        assert drain(allowance, moment, demand) <= math.ceil(starts + 1e-6)


@given(st.lists(st.tuples(budgets, st.integers(0, 50)), min_size=2, max_size=40), pool_sizes)
def test_no_window_of_readings_gets_more_than_it_allows_and_one(
    steps: list[tuple[float, int]], workers: int
) -> None:
    allowance, allowed, started = StartAllowance(), [0.0], [0]
    for moment, (budget, demand) in enumerate(steps):
        allowance.renew(limited(budget, workers), taken_at=moment)
        allowed.append(allowed[-1] + limited(budget, workers))
        started.append(started[-1] + drain(allowance, moment, demand))
    for begin in range(len(steps)):
        for end in range(begin + 1, len(started)):
            assert started[end] - started[begin] < allowed[end] - allowed[begin] + 1.001


@given(
    st.lists(
        st.tuples(budgets, st.lists(st.sampled_from(["take", "refund"]), max_size=20)),
        min_size=1,
        max_size=30,
    ),
    pool_sizes,
)
def test_refunds_whenever_they_come_let_no_reading_start_more_than_it_allows(
    steps: list[tuple[float, list[str]]], workers: int
) -> None:
    allowance, held, now = StartAllowance(), list[float](), 0.0
    for budget, actions in steps:
        now += 1
        starts, taken_at = limited(budget, workers), now
        allowance.renew(starts, taken_at=taken_at)
        for action in actions:
            now += 0.001
            if action == "refund" and held:
                allowance.refund(held.pop())
            elif action == "take" and allowance.take(now):
                held.append(now)
        assert sum(at >= taken_at for at in held) <= math.ceil(starts + 1e-6)


def test_a_small_budget_is_slow_and_not_zero() -> None:
    allowance = StartAllowance()
    started = []
    for moment in range(40):
        allowance.renew(limited(0.1, 1), taken_at=moment)
        started += [moment] * drain(allowance, moment)
    assert len(started) == 4
    assert {later - earlier for earlier, later in pairwise(started)} == {10}


def test_one_start_that_was_saved_up_waits_for_its_request() -> None:
    allowance = StartAllowance()
    for moment in range(35):
        allowance.renew(limited(0.1, 1), taken_at=moment)
    assert allowance.available() == 1


def test_long_idleness_builds_no_burst() -> None:
    allowance = StartAllowance()
    for moment in range(1000):
        allowance.renew(limited(0.25, 10), taken_at=moment)
    assert drain(allowance, 1000) == 3


def test_a_budget_of_0_starts_nothing_and_keeps_the_fraction() -> None:
    allowance = StartAllowance()
    allowance.renew(0.75, taken_at=1)
    allowance.renew(0.0, taken_at=2)
    assert drain(allowance, 2) == 0
    allowance.renew(0.25, taken_at=3)
    assert drain(allowance, 3) == 1


def test_a_full_budget_sets_no_limit() -> None:
    allowance = StartAllowance()
    allowance.renew(start_limit(1.0, 4), taken_at=0)
    assert allowance.available() is None
    assert drain(allowance, 0, demand=500) == 500


def test_nothing_starts_before_the_first_reading() -> None:
    assert drain(StartAllowance(), 0) == 0


@pytest.mark.parametrize("budget_before", [0.5, 1.0])
def test_starts_that_a_reading_cannot_know_of_count_against_it(budget_before: float) -> None:
    allowance = StartAllowance()
    allowance.renew(start_limit(budget_before, 10), taken_at=0)
    for now in (1.0, 4.9, 5.0, 5.5):
        assert allowance.take(now)
    allowance.renew(4.0, taken_at=5.0)  # asked at 5.0, answered later
    assert drain(allowance, 6) == 2


def test_a_refund_within_a_reading_is_as_if_nothing_had_been_taken() -> None:
    allowance = StartAllowance()
    allowance.renew(2.0, taken_at=0)
    assert allowance.take(1)
    allowance.refund(1)
    assert drain(allowance, 2) == 2


def test_a_late_refund_gives_back_what_would_have_been_carried_over() -> None:
    allowance = StartAllowance()
    for moment in range(10):
        allowance.renew(0.1, taken_at=moment)
    assert allowance.take(9)
    allowance.renew(0.1, taken_at=10)
    assert allowance.available() == 0
    allowance.refund(9)
    assert allowance.available() == 1
    allowance.refund(9)
    assert allowance.available() == 1


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
