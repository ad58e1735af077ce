"""Holds back warnings and errors that say the same thing again and again."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Final

import structlog

from async_processor.clock import Clock

INTERVAL: Final = 10.0
"""Seconds between two records of the same event about the same thing."""

IDENTITY: Final = (
    "component",
    "key",
    "queue_name",
    "queue_id",
    "pool_name",
    "path",
    "url",
    "sensor",
    "process",
)
"""The fields that tell what an event is about; other fields may differ between repetitions."""

_REMEMBERED: Final = 1024


class Repeats:
    """Processor: lets the first of its kind through at once, then one per `interval` seconds.

    The one that goes through says in `suppressed` how many were held back before it.
    """

    def __init__(self, clock: Clock, interval: float = INTERVAL) -> None:
        self._clock = clock
        self._interval = interval
        self._last: dict[tuple[object, ...], float] = {}
        self._suppressed: dict[tuple[object, ...], int] = {}

    def __call__(
        self, _logger: Any, _method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        if event.get("level") not in ("warning", "error"):
            return event
        kind = (event["event"], *(str(event.get(name, "")) for name in IDENTITY))
        now = self._clock.monotonic()
        if now - self._last.get(kind, -self._interval) < self._interval:
            self._suppressed[kind] = self._suppressed.get(kind, 0) + 1
            raise structlog.DropEvent
        self._remember(kind, now)
        if suppressed := self._suppressed.pop(kind, 0):
            event["suppressed"] = suppressed
        return event

    def _remember(self, kind: tuple[object, ...], now: float) -> None:
        if len(self._last) >= _REMEMBERED:
            self._forget(now)
        self._last[kind] = now

    def _forget(self, now: float) -> None:
        """Keep the memory bounded: the quiet ones go, and if all are loud, everything."""
        loud = {kind: at for kind, at in self._last.items() if now - at < self._interval}
        self._last = loud if len(loud) < _REMEMBERED else {}
        self._suppressed = {kind: n for kind, n in self._suppressed.items() if kind in self._last}
