"""Looking past requests whose lane is full, for others in the same queue whose lane is not.

Whose a request is shows only when it is claimed, so that those in front have to be put aside. As
long as that finds somebody it goes on; in vain it goes slowly, so that a queue of one tenant's is
not put aside as a whole.
"""

from __future__ import annotations


class Looks:
    """Looks in vain: `most` in a row after somebody was found, and `pace` each second."""

    def __init__(self, *, most: float, pace: float) -> None:
        self._most = most
        self._pace = pace
        self._left = 0.0
        self._counted_at: float | None = None

    def left(self, now: float) -> int:
        """How many requests may be looked past now (monotonic seconds)."""
        if self._counted_at is not None:
            grown = self._left + (now - self._counted_at) * self._pace
            self._left = min(self._most, grown)
        self._counted_at = now
        return max(0, int(self._left))

    def found(self) -> None:
        """Somebody was found beside a full lane."""
        self._left = self._most

    def in_vain(self) -> None:
        """A request was put aside."""
        self._left -= 1
