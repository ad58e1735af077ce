"""A pool is filled step by step, and its starts are spread."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_processor.admission.pace import CAUTION, FEW, SHARE, TICK, Pace, Step, growth

shares = st.floats(0, 1)
counts = st.integers(0, 10_000)


def reading(pace: Pace, *, starts: float, used: float = 0.0, workers: float = 64) -> Step:
    pace.turn()
    return pace.step(starts=starts, used=used, limit=0.8, workers=workers, interval=1.0)


def start(pace: Pace, step: Step, now: float, demand: int = 10_000) -> int:
    """Start what may start; returns how many those were."""
    started = 0
    while started < demand and pace.room(step, now) > 0:
        pace.started()
        pace.take(step, now)
        started += 1
    return started


def end(pace: Pace, count: int) -> None:
    for _ in range(count):
        pace.ended()


def run_for(pace: Pace, step: Step, begin: float, seconds: float) -> list[int]:
    """What starts at each tick."""
    ticks = round(seconds / TICK)
    return [start(pace, step, begin + tick * TICK) for tick in range(ticks)]


def test_an_unused_pool_is_filled_by_a_share_of_the_workers_at_each_reading() -> None:
    assert growth(used=0.0, limit=0.8, before=0, running=0, workers=1000) == 1000 * SHARE
    assert growth(used=0.0, limit=0.8, before=50, running=50, workers=1000) == 1000 * SHARE


def test_a_few_more_are_always_borne() -> None:
    assert growth(used=0.0, limit=0.8, before=0, running=0, workers=10) == FEW


def test_near_the_limit_growth_is_what_will_fit() -> None:
    """A hundred use half of the pool, so that 160 use 0.8 of it."""
    assert growth(used=0.5, limit=0.8, before=100, running=140, workers=1000) == pytest.approx(20)


def test_requests_that_cannot_show_yet_do_not_make_the_others_look_light() -> None:
    shown = growth(used=0.4, limit=0.8, before=100, running=100, workers=4000)
    hidden = growth(used=0.4, limit=0.8, before=100, running=190, workers=4000)
    assert (shown, hidden) == (100, CAUTION * 4000 * SHARE)


@given(used=shares, limit=st.floats(0.01, 1), before=counts, running=counts, workers=counts)
def test_growth_is_never_nothing_and_never_more_than_a_step(
    used: float, limit: float, before: int, running: int, workers: int
) -> None:
    step = max(FEW, SHARE * workers)
    more = growth(used=used, limit=limit, before=before, running=running, workers=workers)
    assert CAUTION * step <= more <= step


def test_no_more_run_than_the_step_allows_and_who_ends_makes_room() -> None:
    pace = Pace()
    step = reading(pace, starts=100, workers=1000)
    assert sum(run_for(pace, step, 0.0, 1.0)) == 50
    assert start(pace, step, 5.0) == 0
    end(pace, 7)
    assert sum(run_for(pace, step, 6.0, 1.0)) == 7


def test_starts_are_spread_over_the_time_until_the_next_reading() -> None:
    pace = Pace()
    step = reading(pace, starts=50, workers=1000)
    by_tick = run_for(pace, step, 0.0, 1.0)
    assert by_tick[0] == FEW
    assert max(by_tick[1:]) <= 2
    assert sum(by_tick[: len(by_tick) // 2]) == pytest.approx(FEW + 25, abs=2)


def test_what_ends_quickly_is_replaced_at_the_rate_at_which_it_ended() -> None:
    pace = Pace()
    step = reading(pace, starts=500, workers=500)
    for second in range(4):
        for tick in range(50):
            end(pace, start(pace, step, second + tick * TICK))
        step = reading(pace, starts=500, workers=500)
    assert step.gap <= 1 / 50


def test_a_pool_that_says_it_is_full_gets_no_more_before_the_next_reading() -> None:
    pace = Pace()
    step = reading(pace, starts=100, workers=1000)
    run_for(pace, step, 0.0, 1.0)
    pace.shed()
    pace.ended()
    assert pace.running == 49
    assert start(pace, step, 2.0) == 0
    end(pace, 2)
    assert start(pace, step, 3.0) == 2
    assert start(pace, reading(pace, starts=100, workers=1000), 4.0) > 0


def test_a_storm_of_refusals_leaves_what_the_pool_bears() -> None:
    pace = Pace()
    step = reading(pace, starts=100, workers=1000)
    run_for(pace, step, 0.0, 1.0)
    for _ in range(30):
        pace.shed()
        pace.ended()
    assert (pace.running, start(pace, step, 2.0)) == (20, 0)
    following = reading(pace, starts=100, workers=1000)
    assert following.gap == pytest.approx(1 / 50)  # what was refused does not count as done


@given(
    st.lists(st.tuples(st.floats(0, 0.5), st.booleans()), max_size=60),
    st.integers(1, 100),
)
def test_what_did_not_start_after_all_takes_nobodys_moment(
    arrivals: list[tuple[float, bool]], starts: int
) -> None:
    """Whoever is refused by a later gate leaves the others what they would have without it."""
    disturbed, calm = Pace(), Pace()
    steps = [reading(pace, starts=starts) for pace in (disturbed, calm)]
    now = 0.0
    for seconds, refused in arrivals:
        now += seconds
        room = disturbed.room(steps[0], now)
        assert room == calm.room(steps[1], now)
        if not room:
            continue
        disturbed.started()
        gap = disturbed.take(steps[0], now)
        if refused:
            disturbed.undone(gap)
        else:
            calm.started()
            calm.take(steps[1], now)


@given(
    capacity=st.integers(20, 2000),
    workers=st.integers(8, 2000),
    seconds=st.integers(1, 12),
    others=st.floats(0, 0.5),
)
def test_a_pool_of_any_size_is_filled_without_going_far_beyond_its_threshold(
    capacity: int, workers: int, seconds: int, others: float
) -> None:
    """Requests of equal length; a reading is a second old, and each request counts at once."""
    pace, limit = Pace(), 0.8
    ends: list[int] = []
    seen = [others, others]
    for now in range(60):
        used = min(1.0, seen[-2])
        pace.turn()
        allowed = max(0.0, (limit - used) * workers)
        step = pace.step(starts=allowed, used=used, limit=limit, workers=workers, interval=1.0)
        budget = math.floor(allowed)
        for tick in range(50):
            started = start(pace, step, now + tick * TICK, min(budget, workers - pace.running))
            budget -= started
            ends += [now + seconds] * started
        done = sum(each <= now for each in ends)
        ends = [each for each in ends if each > now]
        end(pace, done)
        seen.append(others + pace.running / capacity)
    surplus = 2 * max(FEW, SHARE * workers) / capacity
    assert max(seen) <= limit + surplus
