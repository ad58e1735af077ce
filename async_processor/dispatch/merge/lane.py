"""One lane: fair shares between groups of requests, deadline order within a group."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Collection

from async_processor.dispatch.merge.base import Ready
from async_processor.dispatch.merge.shares import Shares

_Entry = tuple[float, int, Ready]


class Lane:
    """The requests that wait in it, by group: a queue, or a tenant. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._groups: dict[str, list[_Entry]] = {}
        self._arrivals = itertools.count()
        self._steps: dict[Ready, float] = {}
        """Of those that wait; who left early is skipped when it comes up."""
        self._sizes: Counter[str] = Counter()
        self._shares = Shares()

    def __len__(self) -> int:
        return len(self._steps)

    def size(self, group: str) -> int:
        """How many of a group wait."""
        return self._sizes[group]

    @property
    def groups(self) -> Collection[str]:
        """Those of which any wait."""
        return self._groups.keys()

    def add(self, group: str, ready: Ready, step: float, now: float) -> None:
        """Let a request wait; its turn moves the group's mark on by `step`."""
        entry = (ready.request.deadline, next(self._arrivals), ready)
        heapq.heappush(self._groups.setdefault(group, []), entry)
        self._steps[ready] = step
        self._sizes[group] += 1
        self._shares.join(group, now)

    def next(self, now: float) -> Ready | None:
        """Take out whose turn it is."""
        if not self._groups:
            return None
        group = min(self._groups, key=self._shares.mark)
        ready = self._groups[group][0][2]
        self.take(group, ready, now)
        return ready

    def take(self, group: str, ready: Ready, now: float) -> None:
        """Take out one that waits, as if it were its turn."""
        self._shares.serve(group, self._steps[ready])
        self.remove(group, ready, now)

    def remove(self, group: str, ready: Ready, now: float) -> bool:
        """Take one out of turn; False when it does not wait here."""
        if self._steps.pop(ready, None) is None:
            return False
        self._sizes[group] -= 1
        heap = self._groups[group]
        while heap and heap[0][2] not in self._steps:
            heapq.heappop(heap)
        if not heap:
            del self._groups[group], self._sizes[group]
            self._shares.leave(group, now)
        return True

    def oldest(self) -> Ready | None:
        """The one that has waited longest."""
        return min(self._steps, key=lambda ready: ready.since, default=None)
