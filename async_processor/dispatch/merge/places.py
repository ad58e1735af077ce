"""How many requests may be claimed ahead of free slots, and how many of them for one lane.

A lane alone has as many places as there are workers. Whatever it takes, each of the others keeps a
few for itself, so that no lane can hide another: with those there are more places than workers, by
a quarter in a large pool.
"""

from __future__ import annotations

from collections.abc import Sequence


class Places:
    """Of a pool with so many workers and lanes; each lane keeps at least `least`."""

    def __init__(self, *, workers: int, lanes: int, least: int) -> None:
        kept = max(least, workers // (4 * lanes))
        self._kept = (kept,) * lanes
        self._all = workers + (lanes - 1) * kept

    def left(self, taken: Sequence[int], lane: int) -> int:
        """How many more a lane may take, of what all lanes have taken; may be < 0."""
        for_any = self._all - sum(map(max, taken, self._kept))
        return for_any + max(0, self._kept[lane] - taken[lane])
