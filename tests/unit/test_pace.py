"""A pool is filled slowly and evenly: work that runs grows by a share per reading, and the starts
of a reading are spread over the time until the next."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_processor.admission.base import Continue, Refuse
from async_processor.admission.pace import FEW, Growth, Pace
from async_processor.admission.sensor_gate import BudgetRule, SensorGate
from async_processor.sensors.base import Observation, Reading
from async_processor.testing.candidates import CANDIDATE
from async_processor.testing.clock import ManualClock
from async_processor.testing.eventually import until


def taken(pace: Pace, now: float) -> int:
    """Start all that are due."""
    count = 0
    while pace.due(now):
        pace.take(now)
        count += 1
    return count


def test_what_runs_grows_by_a_tenth_of_the_workers_per_reading() -> None:
    growth = Growth()
    assert [growth.limit(80.0, 100) for _ in range(3)] == [10, 10, 10]


def test_what_has_ended_since_the_last_reading_may_be_replaced_on_top() -> None:
    growth = Growth()
    for _ in range(25):
        growth.ended()
    assert growth.limit(80.0, 100) == 35
    assert growth.limit(80.0, 100) == 10


def test_growth_allows_no_more_than_the_reading_does() -> None:
    growth = Growth()
    for _ in range(1000):
        growth.ended()
    assert growth.limit(3.5, 100) == 3.5
    assert growth.limit(0.0, 100) == 0.0
    assert growth.limit(None, 100) is None


def test_a_small_pool_grows_by_one() -> None:
    assert Growth().limit(0.9, 1) == 0.9
    assert Growth().limit(4.0, 4) == 1


def test_the_starts_of_a_reading_are_spread_until_the_next() -> None:
    pace = Pace(1.0)
    pace.begin(100, 0.0)
    assert taken(pace, 0.0) == FEW
    assert [taken(pace, moment / 10) for moment in range(1, 10)] == [pytest.approx(9, abs=2)] * 9


def test_idleness_saves_up_no_more_than_a_few() -> None:
    pace = Pace(1.0)
    pace.begin(50, 0.0)
    assert taken(pace, 100.0) == FEW


def test_at_a_high_rate_no_start_is_lost_between_two_wake_ups() -> None:
    pace = Pace(1.0)
    pace.begin(2000, 0.0)
    started = sum(taken(pace, tick * 0.02) for tick in range(51))
    assert started == pytest.approx(2000, rel=0.02)


@given(st.lists(st.tuples(st.floats(0, 500), st.floats(0.05, 3)), min_size=1, max_size=30))
def test_no_stretch_of_time_gets_more_than_its_share_and_a_few(
    readings: list[tuple[float, float]],
) -> None:
    pace, now, allowed, started = Pace(1.0), 0.0, 0.0, 0
    for starts, seconds in readings:
        pace.begin(starts, now)
        for _ in range(5):
            now += seconds / 5
            allowed += starts * seconds / 5
            started += taken(pace, now)
            assert started <= allowed + FEW + 1e-6


def test_without_an_interval_all_may_start_at_once() -> None:
    pace = Pace(0.0)
    pace.begin(100, 0.0)
    assert pace.due(0.0) is None


def test_a_start_that_did_not_happen_is_due_again() -> None:
    pace = Pace(1.0)
    pace.begin(10, 0.0)
    assert taken(pace, 0.0) == FEW
    pace.give_back()
    assert pace.due(0.0) == 1


class Dial:
    """A sensor that a test sets."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._latest: Observation | None = None

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def latest(self) -> Observation | None:
        return self._latest

    def subscribe(self, wake: object) -> None: ...

    def turn(self, value: float) -> None:
        self._latest = Reading(value=value, taken_at=self._clock.monotonic())


def gate_over(dial: Dial, clock: ManualClock, **rule: bool) -> SensorGate:
    return SensorGate("t", dial, BudgetRule(**rule), workers=200, clock=clock, interval=1.0)


async def test_a_gate_wakes_the_waiting_when_more_starts_become_due() -> None:
    clock = ManualClock()
    dial = Dial(clock)
    gate, woken = gate_over(dial, clock), asyncio.Event()
    gate.subscribe(woken.set)
    dial.turn(0.5)
    for _ in range(FEW):
        assert isinstance(await gate.admit(CANDIDATE), Continue)
    verdict = await gate.admit(CANDIDATE)
    assert isinstance(verdict, Refuse)
    assert verdict.message == "the starts that the last reading allows are spread over time"
    assert gate.permits(200) == 0
    await until(woken.is_set)
    await clock.advance(0.1)
    assert gate.permits(200) == 2  # of the 20 that the reading lets start
    await gate.stop()


async def test_an_idle_pool_that_was_measured_is_filled_slowly_too() -> None:
    clock = ManualClock()
    dial = Dial(clock)
    told, measured = gate_over(dial, clock), gate_over(dial, clock, measured=True)
    dial.turn(1.0)
    assert told.permits(200) == 200
    assert measured.permits(200) == FEW
    for _ in range(12):
        await clock.advance(0.1)
        while isinstance(await measured.admit(CANDIDATE), Continue):
            pass
    assert measured.permits(200) == 0  # 20 have started, and no reading has come since
    await measured.stop()


async def test_what_ended_makes_room_at_the_next_reading() -> None:
    clock = ManualClock()
    dial = Dial(clock)
    gate = gate_over(dial, clock)
    dial.turn(0.5)
    for _ in range(FEW):
        verdict = await gate.admit(CANDIDATE)
        assert isinstance(verdict, Continue)
        await verdict.ticket.release()
    await clock.advance(1)
    dial.turn(0.5)
    started = 0
    for _ in range(100):
        await clock.advance(0.01)
        while isinstance(await gate.admit(CANDIDATE), Continue):
            started += 1
    assert started == 20 + FEW
    await gate.stop()
