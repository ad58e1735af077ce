"""One lane: round-robin between queues, deadline order within a queue."""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict

from async_processor.dispatch.merge.base import Ready

_Entry = tuple[float, int, Ready]


class Lane:
    """The requests that wait in it, at most `capacity`. Every operation is O(log n)."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._queues: OrderedDict[str, list[_Entry]] = OrderedDict()
        self._arrivals = itertools.count()
        self._waiting: set[int] = set()
        """Identities of those that wait; who left early is skipped when it comes up."""

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def room(self) -> int:
        return self._capacity - len(self._waiting)

    def add(self, ready: Ready) -> None:
        entry = (ready.request.deadline, next(self._arrivals), ready)
        heapq.heappush(self._queues.setdefault(ready.queue.queue_name, []), entry)
        self._waiting.add(id(ready))

    def remove(self, ready: Ready) -> bool:
        """Take one out of turn; False when it does not wait here."""
        if id(ready) not in self._waiting:
            return False
        self._waiting.discard(id(ready))
        self._tidy(ready.queue.queue_name)
        return True

    def peek(self) -> Ready | None:
        """Whose turn is next."""
        for heap in self._queues.values():
            return heap[0][2]
        return None

    def next(self) -> Ready | None:
        """Take out whose turn it is; its queue is then the last in the round."""
        ready = self.peek()
        if ready is None:
            return None
        name = ready.queue.queue_name
        self._waiting.discard(id(ready))
        self._tidy(name)
        if name in self._queues:
            self._queues.move_to_end(name)
        return ready

    def oldest(self) -> Ready | None:
        """The one that has waited longest."""
        waiting = (
            entry[2]
            for heap in self._queues.values()
            for entry in heap
            if id(entry[2]) in self._waiting
        )
        return min(waiting, key=lambda ready: ready.since, default=None)

    def _tidy(self, name: str) -> None:
        """Drop the departed from the front, so that a front entry always waits."""
        heap = self._queues[name]
        while heap and id(heap[0][2]) not in self._waiting:
            heapq.heappop(heap)
        if not heap:
            del self._queues[name]
