"""A sensor reads at its interval, once for all its readers, and knows when it knows nothing."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from typing import cast
from weakref import ref

import pytest

from async_processor.lifecycle import SideTaskDied
from async_processor.listeners import Leave
from async_processor.sensors.base import (
    BadAnswer,
    Measurement,
    NoAnswer,
    Reading,
    Sensor,
    Source,
    Unreadable,
)
from async_processor.sensors.polling import EAGER_SECONDS, IDLE_INTERVAL, JITTER, PollingSensor
from async_processor.sensors.registry import Sensors
from async_processor.testing.clock import ManualClock

INTERVAL = 5.0


class Script:
    """A source that says what a test wrote down; its last line goes on for ever."""

    def __init__(self, *lines: Measurement | Exception) -> None:
        self._lines = list(lines)
        self.reads = 0

    name = "script"

    def say(self, line: Measurement | Exception) -> None:
        self._lines = [line]

    async def read(self, timeout: float) -> Measurement:
        self.reads += 1
        line = self._lines.pop(0) if len(self._lines) > 1 else self._lines[0]
        if isinstance(line, Exception):
            raise line
        return line


def value(number: float) -> Measurement:
    return Measurement(value=number)


class Stage:
    """Sensors on a clock that a test moves."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.sensors = Sensors(self.clock)
        self.heard: list[str] = []

    async def running(self, source: Source) -> PollingSensor:
        sensor = cast("PollingSensor", self.sensors.polling(source, INTERVAL))
        self.leave = self.hear(sensor)
        await self.clock.advance(0)
        return sensor

    def hear(self, sensor: Sensor, name: str = "") -> Leave:
        """Listen to a sensor until what is returned is called."""
        return sensor.subscribe(lambda: self.heard.append(name))


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    yield stage
    await stage.sensors.stop()


def number(sensor: PollingSensor) -> float | str | None:
    match sensor.latest():
        case Reading(value=found):
            return found
        case Unreadable(reason=reason):
            return reason
        case None:
            return None


async def test_one_look_per_interval(stage: Stage) -> None:
    source = Script(value(0.5))
    sensor = stage.sensors.polling(source, INTERVAL)
    assert sensor.latest() is None
    await stage.running(source)
    assert source.reads == 1
    await stage.clock.advance(100 * INTERVAL)
    assert 100 / (1 + JITTER) <= source.reads <= 1 + 100 / (1 - JITTER)


async def test_equal_sources_share_a_sensor(stage: Stage) -> None:
    source = Script(value(0.5))
    assert stage.sensors.polling(source, 5) is stage.sensors.polling(source, 5)
    assert stage.sensors.polling(source, 5) is not stage.sensors.polling(source, 1)


async def test_it_reads_once_for_all_and_as_long_as_somebody_listens(stage: Stage) -> None:
    source = Script(value(0.5))
    sensor = await stage.running(source)
    leave = stage.hear(sensor, "other")
    await stage.clock.advance(0)
    assert source.reads == 1
    stage.leave()
    stage.leave()
    await stage.clock.advance(2 * INTERVAL)
    assert source.reads > 1
    leave()
    before = source.reads
    await stage.clock.advance(10 * INTERVAL)
    assert source.reads == before
    stage.hear(sensor)
    await stage.clock.advance(0)
    assert source.reads == before + 1


async def test_a_sensor_that_nobody_has_is_forgotten(stage: Stage) -> None:
    source = Script(value(0.5))
    sensor = await stage.running(source)
    again = stage.sensors.polling(source, INTERVAL)
    assert again is sensor
    stage.leave()
    await stage.clock.advance(0)
    forgotten = ref(sensor)
    del sensor, again, stage.leave
    gc.collect()
    assert forgotten() is None


async def test_nonsense_voids_the_last_reading_at_once(stage: Stage) -> None:
    source = Script(value(0.5), BadAnswer("the value is NaN"))
    sensor = await stage.running(source)
    assert number(sensor) == 0.5
    await stage.clock.advance(1.2 * INTERVAL)
    assert number(sensor) == "the value is NaN"


async def test_silence_leaves_the_last_reading_until_it_is_too_old(stage: Stage) -> None:
    source = Script(value(0.5))
    sensor = await stage.running(source)
    source.say(NoAnswer("connection refused"))
    await stage.clock.advance(2 * INTERVAL)
    assert source.reads > 1
    assert number(sensor) == 0.5
    await stage.clock.advance(sensor.max_age)
    assert number(sensor) == "connection refused"


async def test_a_source_that_never_answered_is_unreadable_after_the_first_look(
    stage: Stage,
) -> None:
    sensor = await stage.running(Script(NoAnswer("connection refused")))
    assert number(sensor) == "connection refused"


async def test_a_source_that_comes_back_is_seen_within_an_interval(stage: Stage) -> None:
    source = Script(NoAnswer("connection refused"))
    sensor = await stage.running(source)
    await stage.clock.advance(20 * INTERVAL)
    source.say(value(0.25))
    await stage.clock.advance(1.2 * INTERVAL)
    assert number(sensor) == 0.25


async def test_a_reading_grows_too_old_by_itself_when_the_loop_is_held_up(stage: Stage) -> None:
    sensor = await stage.running(Script(value(0.5)))
    stage.leave()  # as a process that is stopped by a signal: nobody reads any more
    await stage.clock.advance(sensor.max_age + 0.1)
    assert "old" in str(number(sensor))


async def test_readers_are_woken_by_readings_and_by_every_look_that_fails(stage: Stage) -> None:
    source = Script(
        value(0.5), BadAnswer("HTML"), BadAnswer("HTML"), NoAnswer("refused"), value(0.75)
    )
    heard: list[float | str | None] = []
    sensor = cast("PollingSensor", stage.sensors.polling(source, INTERVAL))
    sensor.subscribe(lambda: heard.append(number(sensor)))
    await stage.running(source)
    await stage.clock.advance(4.5 * INTERVAL)
    assert heard == [0.5, "HTML", "HTML", "refused", 0.75]


async def test_a_reading_is_as_old_as_its_question(stage: Stage) -> None:
    class Slow(Script):
        async def read(self, timeout: float) -> Measurement:
            await stage.clock.sleep(3)
            return await super().read(timeout)

    sensor = await stage.running(Slow(value(0.5)))
    await stage.clock.advance(3)
    latest = sensor.latest()
    assert isinstance(latest, Reading)
    assert latest.taken_at == 0


async def test_the_same_answer_again_is_no_new_reading(stage: Stage) -> None:
    source = Script(Measurement(value=0.5, moment=1764000000.25))
    sensor = await stage.running(source)
    first = sensor.latest()
    await stage.clock.advance(INTERVAL)
    assert sensor.latest() is first
    await stage.clock.advance(sensor.max_age)
    assert "same answer" in str(number(sensor))


async def test_a_jump_of_the_wall_clock_changes_nothing(stage: Stage) -> None:
    sensor = await stage.running(Script(value(0.5)))
    stage.clock.synchronise(0.0)
    assert number(sensor) == 0.5


async def test_a_fault_of_ours_is_not_taken_for_an_unreadable_source(stage: Stage) -> None:
    await stage.running(Script(KeyError("bug")))
    with pytest.raises(SideTaskDied, match="sensor script"):
        await stage.sensors.run()


async def test_an_eager_sensor_reads_often_only_while_it_is_asked() -> None:
    stage, source, interval = Stage(), Script(value(0.5)), 0.08
    sensor = stage.sensors.eager(source, interval)
    assert stage.sensors.eager(source, interval) is sensor
    stage.hear(sensor)
    await stage.clock.advance(10)
    assert source.reads <= 10 / IDLE_INTERVAL + 1
    for _ in range(10):
        sensor.ask()
        before = source.reads
        await stage.clock.advance(1)
        assert source.reads - before >= 10  # at least every 100 ms
    await stage.clock.advance(EAGER_SECONDS)
    before = source.reads
    await stage.clock.advance(10)
    assert source.reads - before <= 10 / IDLE_INTERVAL
    await stage.sensors.stop()
