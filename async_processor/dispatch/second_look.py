"""Requests that wait for their turn as overflow, and that their quota could cover by now.

What was over its tenant's quota when it came is looked at again, earliest deadline first, whenever
room is made: else a request that is covered would wait behind those that are not.
"""

from __future__ import annotations

import heapq
import itertools
from functools import partial

from async_processor.admission.base import Gate
from async_processor.dispatch.seat import Seat
from async_processor.listeners import Subscriptions


class SecondLook:
    """One queue's, by the lots that its gate names; listens to it as long as somebody waits."""

    def __init__(self, gate: Gate) -> None:
        self._waiting: dict[str, list[tuple[float, int, Seat]]] = {}
        self._arrivals = itertools.count()
        self._hears = Subscriptions(partial(gate.on_room, self._room))

    def wait(self, lot: str, deadline: float, seat: Seat) -> None:
        """A request waits for its turn; `deadline` (Unix time) is its rank."""
        self._hears.join()
        heap = self._waiting.setdefault(lot, [])
        heapq.heappush(heap, (deadline, next(self._arrivals), seat))

    def leave(self, lot: str, seat: Seat) -> None:
        """It does not wait any more."""
        left = [entry for entry in self._waiting.get(lot, ()) if entry[2] is not seat]
        if left:
            heapq.heapify(left)
            self._waiting[lot] = left
        else:
            self._waiting.pop(lot, None)
        if not self._waiting:
            self._hears.leave()

    def _room(self, lot: str) -> None:
        if lot in self._waiting:
            self._waiting[lot][0][2].look_again()
