"""How many requests may be claimed ahead of free slots, and how many of them for one lane.

A lane alone has as many places as there are workers. Whatever it takes, each of the others keeps a
few for itself, so that no lane can hide another: with those there are more places than workers, by
a quarter in a large pool.
"""

from __future__ import annotations


class Places:
    """Of a pool with so many workers and lanes; each lane keeps at least `least`."""

    def __init__(self, *, workers: int, lanes: int, least: int) -> None:
        self._kept = max(least, workers // (4 * lanes))
        self._taken = [0] * lanes
        self._for_any = workers - self._kept
        """Left of those that no lane keeps for itself; may be < 0."""

    def take(self, lane: int, change: int) -> None:
        """A lane takes so many more, or fewer."""
        before = max(self._taken[lane], self._kept)
        self._taken[lane] += change
        self._for_any -= max(self._taken[lane], self._kept) - before

    def left(self, lane: int) -> int:
        """How many more a lane may take; may be < 0."""
        return self._for_any + max(0, self._kept - self._taken[lane])
