"""The sensors of this process: one per thing that is read, whatever the number of its readers."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakValueDictionary

from async_processor.clock import Clock
from async_processor.lifecycle import Watch
from async_processor.sensors.base import Sensor, Source
from async_processor.sensors.polling import EagerSensor, PollingSensor

if TYPE_CHECKING:
    import httpx

MOST_REDIRECTS: Final = 2
"""Of a metrics page: to HTTPS, and from /metrics to /metrics/."""

_S = TypeVar("_S", bound=PollingSensor)
_Key = tuple[Source, float]


class Sensors:
    """A service that hands out sensors, equal sources sharing one, and owns their HTTP client.

    A sensor is forgotten when no gate has it any more.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watch = Watch()
        self._polling = WeakValueDictionary[_Key, PollingSensor]()
        self._eager = WeakValueDictionary[_Key, EagerSensor]()

    @cached_property
    def http(self) -> httpx.AsyncClient:
        """For sources that read over HTTP; each fetch is timed as a whole, not step by step."""
        import httpx  # takes long, and many a configuration has no such source

        return httpx.AsyncClient(timeout=None, max_redirects=MOST_REDIRECTS)  # noqa: S113

    def polling(self, source: Source, interval: float) -> Sensor:
        """The sensor that reads `source` every `interval` seconds."""
        return self._shared(self._polling, PollingSensor, source, interval)

    def eager(self, source: Source, interval: float) -> EagerSensor:
        """The sensor that reads `source` every `interval` seconds while it is asked to."""
        return self._shared(self._eager, EagerSensor, source, interval)

    def _shared(
        self,
        sensors: WeakValueDictionary[_Key, _S],
        kind: type[_S],
        source: Source,
        interval: float,
    ) -> _S:
        sensor = sensors.get((source, interval))
        if sensor is None:
            sensor = kind(source, interval=interval, clock=self._clock, watch=self._watch)
            sensors[source, interval] = sensor
        return sensor

    async def start(self) -> None:
        """Nothing to start: a sensor reads for whoever subscribes."""

    async def stop(self) -> None:
        await self._watch.stop()
        if "http" in self.__dict__:
            await self.http.aclose()

    async def run(self) -> None:
        """Run until cancelled; raises SideTaskDied when a sensor's loop does."""
        raise await self._watch.failure()
