"""Lots that had as many messages as there was room for, and may have more of both.

What was called back has to be claimed and admitted before the room it takes can be seen, so such a
lot is left alone for a moment. It is for twice as long whenever one of its messages has come back
in vain and is parked again: those must not come and go for ever. It begins anew when somebody tells
of room there.

A message that is parked in a lot that stands here plans a look at it, unless one is planned: the
look that is under way, or that the broker has cut short, may know nothing of the message.
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
        self._at: dict[str, float] = {}
        """When those are due that wait for it."""
        self._due: list[tuple[float, str]] = []
        """The same in order; what differs from `_at` does not hold any more."""

    def __contains__(self, lot: str) -> bool:
        return lot in self._pauses

    @property
    def next_at(self) -> float:
        """When the next is due, or was."""
        return self._due[0][0] if self._due else math.inf

    def add(self, lot: str, now: float) -> None:
        """Look at a lot again in a while."""
        self._pauses.setdefault(lot, FIRST_AFTER)
        self._plan(lot, now)

    def in_vain(self, lot: str, now: float) -> None:
        """A message of a lot that stands here is parked again."""
        self._pauses[lot] = min(2 * self._pauses[lot], self._longest)
        self._plan(lot, now)

    def _plan(self, lot: str, now: float) -> None:
        if lot not in self._at:
            self._at[lot] = now + self._pauses[lot]
            heapq.heappush(self._due, (self._at[lot], lot))

    def due(self, now: float) -> set[str]:
        """Take out the lots whose time has come, and say `add` or `looked_at` of each of them."""
        found = set[str]()
        while self._due and self._due[0][0] <= now:
            at, lot = heapq.heappop(self._due)
            if self._at.get(lot) == at:
                del self._at[lot]
                found.add(lot)
        return found

    def looked_at(self, lot: str) -> None:
        """The lot is empty, or has no room, unless a message was parked there during the look."""
        if lot not in self._at:
            self.forget(lot)

    def forget(self, lot: str) -> None:
        """Somebody tells of room there: begin anew."""
        self._pauses.pop(lot, None)
        self._at.pop(lot, None)
