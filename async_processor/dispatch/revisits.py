"""Lots that had as many messages as there was room for, and may have more of both.

What was called back has to be claimed and admitted before the room it takes can be seen. So such a
lot is left alone for a moment, and each time for twice as long, until somebody tells of room there:
messages that come back in vain (a later gate is closed, say) must not come and go for ever.
"""

from __future__ import annotations

import heapq
import math
from typing import Final

FIRST_AFTER: Final = 0.1
"""Seconds."""


class Revisits:
    """Times are monotonic seconds. Each lot stands here once; after `longest` it is forgotten."""

    def __init__(self, *, longest: float) -> None:
        self._longest = longest
        self._pauses: dict[str, float] = {}
        self._due: list[tuple[float, str]] = []

    def __contains__(self, lot: str) -> bool:
        return lot in self._pauses

    @property
    def next_at(self) -> float:
        """When the next is due, or was."""
        return self._due[0][0] if self._due else math.inf

    def add(self, lot: str, now: float) -> None:
        """Look at a lot again, later than the last time."""
        pause = 2 * self._pauses.get(lot, FIRST_AFTER / 2)
        if pause > self._longest:
            self.forget(lot)
            return
        self._pauses[lot] = pause
        heapq.heappush(self._due, (now + pause, lot))

    def due(self, now: float) -> set[str]:
        """Take out the lots whose time has come; `add` or `forget` each of them."""
        found = set[str]()
        while self._due and self._due[0][0] <= now:
            found.add(heapq.heappop(self._due)[1])
        return found & self._pauses.keys()

    def forget(self, lot: str) -> None:
        """The lot is empty, or has no room, or somebody tells of it: begin anew."""
        self._pauses.pop(lot, None)
