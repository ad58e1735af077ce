"""Holds back warnings and errors that say the same thing again and again."""

from __future__ import annotations

from typing import Final

from async_processor.clock import Clock
from async_processor.telemetry.presenting import Record

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
    """Lets the first of its kind through at once, then one per `interval` seconds."""

    def __init__(self, clock: Clock, interval: float = INTERVAL) -> None:
        self._clock = clock
        self._interval = interval
        self._last: dict[tuple[object, ...], float] = {}
        self._suppressed: dict[tuple[object, ...], int] = {}

    def admit(self, record: Record) -> bool:
        """Whether it goes out; it says in `suppressed` then how many were held back before it."""
        if record["level"] not in ("warning", "error"):
            return True
        kind = (record["event"], *(str(record.get(name, "")) for name in IDENTITY))
        now = self._clock.monotonic()
        if now - self._last.get(kind, -self._interval) < self._interval:
            self._suppressed[kind] = self._suppressed.get(kind, 0) + 1
            return False
        self._remember(kind, now)
        if suppressed := self._suppressed.pop(kind, 0):
            record["suppressed"] = suppressed
        return True

    def _remember(self, kind: tuple[object, ...], now: float) -> None:
        if len(self._last) >= _REMEMBERED:
            self._forget(now)
        self._last[kind] = now

    def _forget(self, now: float) -> None:
        """Keep the memory bounded: the quiet ones go, and if all are loud, everything."""
        loud = {kind: at for kind, at in self._last.items() if now - at < self._interval}
        self._last = loud if len(loud) < _REMEMBERED else {}
        self._suppressed = {kind: n for kind, n in self._suppressed.items() if kind in self._last}
