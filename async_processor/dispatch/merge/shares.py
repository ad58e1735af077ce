"""Who is next among groups that share something by their weights.

Start-time fair queueing (Goyal, Vin and Cheng, "Start-time Fair Queuing", SIGCOMM 1996): every
group has a mark, which each service moves on by cost / weight, and the lowest mark is next. A group
that comes anew starts at the mark of whoever was served last, so that nobody saves anything up
while it wants nothing. One that was away for less than a second keeps its mark: what waits here is
a short front of what waits in the broker, and the way from there costs nobody a turn.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

GRACE: Final = 1.0
"""Seconds."""

LARGEST_MARK: Final = 1e9
"""Beyond it all marks are counted from the last one served anew, for far from zero a small step
would be lost in the rounding."""


class Shares:
    """The marks of the groups that are present, and of those that left just now.

    Times are monotonic seconds and never go back.
    """

    def __init__(self) -> None:
        self._now = 0.0
        """The mark of whoever was served last."""
        self._marks: dict[str, float] = {}
        self._left: OrderedDict[str, float] = OrderedDict()

    def mark(self, group: str) -> float:
        """The rank of a group that is present; the lowest is next."""
        return self._marks[group]

    def join(self, group: str, now: float) -> None:
        """A group wants something; one that is present already stays as it is."""
        self._forget(now)
        self._left.pop(group, None)
        self._marks.setdefault(group, self._now)

    def serve(self, group: str, step: float) -> None:
        """A present group gets something; `step` is what that costs, by the group's weight."""
        self._now = max(self._now, self._marks[group])
        self._marks[group] += step
        if self._now > LARGEST_MARK:
            self._count_anew()

    def leave(self, group: str, now: float) -> None:
        """A present group wants nothing more for now."""
        self._left[group] = now

    def _count_anew(self) -> None:
        self._marks = {group: mark - self._now for group, mark in self._marks.items()}
        self._now = 0.0

    def _forget(self, now: float) -> None:
        while self._left:
            group, left_at = next(iter(self._left.items()))
            if now - left_at <= GRACE:
                return
            del self._left[group], self._marks[group]
