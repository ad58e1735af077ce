"""The sensors of this process: one per thing that is read, whatever the number of its readers."""

from __future__ import annotations

from functools import cached_property

import httpx

from async_processor.clock import Clock
from async_processor.lifecycle import Watch
from async_processor.sensors.base import Sensor, Source
from async_processor.sensors.polling import EagerSensor, PollingSensor


class Sensors:
    """A service that hands out sensors, equal sources sharing one, and owns their HTTP client.

    A gate starts the sensor it looks at and leaves the stopping to `stop`, since it cannot know
    whether it was the last to look.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watch = Watch()
        self._polling: dict[tuple[Source, float], PollingSensor] = {}
        self._eager: dict[tuple[Source, float], EagerSensor] = {}

    @cached_property
    def http(self) -> httpx.AsyncClient:
        """For sources that read over HTTP; each fetch is timed as a whole, not step by step."""
        return httpx.AsyncClient(timeout=None, follow_redirects=True)  # noqa: S113

    def polling(self, source: Source, interval: float) -> Sensor:
        """The sensor that reads `source` every `interval` seconds."""
        key = (source, interval)
        if key not in self._polling:
            self._polling[key] = PollingSensor(
                source, interval=interval, clock=self._clock, watch=self._watch
            )
        return self._polling[key]

    def eager(self, source: Source, interval: float) -> EagerSensor:
        """The sensor that reads `source` every `interval` seconds while it is asked to."""
        key = (source, interval)
        if key not in self._eager:
            self._eager[key] = EagerSensor(
                source, interval=interval, clock=self._clock, watch=self._watch
            )
        return self._eager[key]

    async def start(self) -> None:
        for sensor in (*self._polling.values(), *self._eager.values()):
            await sensor.start()

    async def stop(self) -> None:
        for sensor in (*self._polling.values(), *self._eager.values()):
            await sensor.stop()
        if "http" in self.__dict__:
            await self.http.aclose()

    async def run(self) -> None:
        """Run until cancelled; raises SideTaskDied when a sensor's loop does."""
        raise await self._watch.failure()
