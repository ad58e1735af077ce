"""The background loop that reads a source.

An answer with nonsense in it makes the source unreadable at once. When no answer comes, the last
reading stands until it is too old: one lost packet must not close a gate, nor open one whose
fallback is open. There is no backoff: one look per interval is all there ever is, and a source that
comes back is seen within an interval.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from functools import partial
from typing import Final

from async_processor.clock import Clock
from async_processor.lifecycle import Watch
from async_processor.listeners import Leave, Listeners
from async_processor.sensors.base import (
    BadAnswer,
    Measurement,
    NoAnswer,
    Observation,
    Reading,
    Source,
    Unreadable,
)
from async_processor.telemetry.logs import get_logger

JITTER: Final = 0.1
"""Share of the interval by which looks come earlier or later, so that replicas spread out."""

SHORTEST_TIMEOUT: Final = 1.0
LONGEST_TIMEOUT: Final = 10.0
"""Seconds for one look; between them it is as long as the interval."""

EAGER_SECONDS: Final = 1.5
"""A sensor that has not been asked for so long is not needed now; who waits asks every second."""

IDLE_INTERVAL: Final = 0.5
"""Seconds between two looks of an eager sensor that nobody asks."""

_log = get_logger(__name__)


class PollingSensor:
    """Reads `source` every `interval` seconds while somebody listens.

    Only the loop and `latest` write its state.
    """

    def __init__(self, source: Source, *, interval: float, clock: Clock, watch: Watch) -> None:
        self.source = source
        self.interval = interval
        self.timeout = min(max(interval, SHORTEST_TIMEOUT), LONGEST_TIMEOUT)
        self.max_age = 2 * interval * (1 + JITTER) + self.timeout
        """Two looks may fail before a reading counts as too old."""
        self._clock = clock
        self._watch = watch
        self._task: asyncio.Task[None] | None = None
        self._latest: Observation | None = None
        self._moment: float | None = None
        self._missed = ""
        """Why the last look brought nothing, while the reading before it still stands."""
        self._wakes = Listeners[[]]()

    def latest(self) -> Observation | None:
        if isinstance(self._latest, Reading) and self._age(self._latest) > self.max_age:
            self._lose(self._missed or f"the last reading is more than {self.max_age:.3g} s old")
        return self._latest

    def subscribe(self, wake: Callable[[], None]) -> Leave:
        leave = self._wakes.add(wake)
        if self._task is None:
            self._task = self._watch.spawn(f"sensor {self.source.name}", self._run())
        return partial(self._leave, leave)

    def _leave(self, leave: Leave) -> None:
        leave()
        if self._task is not None and not len(self._wakes):
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        while True:
            asked_at = self._clock.monotonic()
            await self._look(asked_at)
            pause = self.interval * random.uniform(1 - JITTER, 1 + JITTER)
            took = self._clock.monotonic() - asked_at
            await self._clock.sleep(max(pause - took, JITTER * self.interval))

    async def _look(self, asked_at: float) -> None:
        before = self.latest()
        try:
            self._take(await self.source.read(self.timeout), asked_at)
        except NoAnswer as error:
            self._miss(str(error))
        except BadAnswer as error:
            self._lose(str(error))
        if self._latest is not before:
            self._report(before)
            self._wakes.tell()

    def _take(self, measurement: Measurement, asked_at: float) -> None:
        moment = measurement.moment
        if moment is not None and moment == self._moment:
            raise NoAnswer("the same answer came again, from some cache on the way")
        self._moment = moment
        self._missed = ""
        self._latest = Reading(
            value=measurement.value,
            capacity=measurement.capacity,
            lag=measurement.lag,
            note=measurement.note,
            taken_at=asked_at,
        )

    def _miss(self, reason: str) -> None:
        self._missed = reason
        if not isinstance(self._latest, Reading) or self._age(self._latest) > self.max_age:
            self._lose(reason)

    def _lose(self, reason: str) -> None:
        self._latest = Unreadable(reason=reason, noticed_at=self._clock.monotonic())

    def _age(self, reading: Reading) -> float:
        return self._clock.monotonic() - reading.taken_at

    def _report(self, before: Observation | None) -> None:
        if isinstance(self._latest, Unreadable):
            _log.warning("source_unreadable", sensor=self.source.name, reason=self._latest.reason)
        elif isinstance(before, Unreadable):
            _log.info("source_readable", sensor=self.source.name)


class EagerSensor(PollingSensor):
    """Reads every `interval` seconds while somebody asks for it, and seldom otherwise.

    For sources that must be heard at once when it matters and are not worth their price when not.
    """

    def __init__(self, source: Source, *, interval: float, clock: Clock, watch: Watch) -> None:
        super().__init__(source, interval=interval, clock=clock, watch=watch)
        self._asked_at = -math.inf
        self._looked_at = -math.inf

    def ask(self) -> None:
        """Somebody has work that waits for the next reading."""
        self._asked_at = self._clock.monotonic()

    async def _look(self, asked_at: float) -> None:
        wanted = asked_at - self._asked_at < EAGER_SECONDS
        if wanted or asked_at - self._looked_at >= IDLE_INTERVAL:
            self._looked_at = asked_at
            await super()._look(asked_at)
