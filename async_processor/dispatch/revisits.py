"""Lots that had as many messages as there was room for, and may have more of both.

What was called back has to be claimed and admitted before the room it takes can be seen, so such a
lot is left alone for a moment. It is for twice as long whenever one of its messages has come back
in vain and is parked again: those must not come and go for ever. It begins anew when somebody tells
of room there.
"""

from __future__ import annotations

import heapq
import math
from typing import Final

FIRST_AFTER: Final = 0.05
"""Seconds."""


class Revisits:
    """Times are monotonic seconds; no lot is left alone for more than `longest`."""

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
        """Look at a lot again in a while."""
        pause = self._pauses.setdefault(lot, FIRST_AFTER)
        heapq.heappush(self._due, (now + pause, lot))

    def in_vain(self, lot: str) -> None:
        """A message of a lot that stands here is parked again."""
        self._pauses[lot] = min(2 * self._pauses[lot], self._longest)

    def due(self, now: float) -> set[str]:
        """Take out the lots whose time has come; `add` or `forget` each of them."""
        found = set[str]()
        while self._due and self._due[0][0] <= now:
            found.add(heapq.heappop(self._due)[1])
        return found & self._pauses.keys()

    def forget(self, lot: str) -> None:
        """The lot is empty, or has no room, or somebody tells of it: begin anew."""
        self._pauses.pop(lot, None)
