"""Where gates get their numbers: a `Sensor` holds the latest `Reading` of one source.

A sensor reads in the background at its own interval, whatever the number of gates that look at
it; gates only ever see the latest reading, without waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """One value and when it was taken (monotonic seconds); `serial` grows with each reading."""

    value: float
    taken_at: float
    serial: int


class Sensor(Protocol):
    """A source of readings.

    `latest` is None while the source is unreadable: it never answered, answered nonsense (NaN,
    infinite, missing), or its last reading is older than it may be.
    """

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def latest(self) -> Reading | None: ...

    def subscribe(self, wake: Callable[[], None]) -> None:
        """Call `wake` after every new reading and whenever the source is lost or found."""
        ...
