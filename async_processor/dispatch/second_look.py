"""Requests that wait for their turn as overflow, and that their quota could cover by now.

What was over its tenant's quota when it came is looked at again, earliest deadline first, whenever
room is made: else a request that is covered would wait behind those that are not.
"""

from __future__ import annotations

from functools import partial

from async_processor.admission.base import Gate
from async_processor.dispatch.seat import Seat
from async_processor.listeners import Subscriptions
from async_processor.ranking import Ranking


class SecondLook:
    """One queue's, by the lots that its gate names; listens to it as long as somebody waits."""

    def __init__(self, gate: Gate) -> None:
        self._waiting: dict[str, Ranking[Seat]] = {}
        self._hears = Subscriptions(partial(gate.on_room, self._room))

    def wait(self, lot: str, deadline: float, seat: Seat) -> None:
        """A request waits for its turn; `deadline` (Unix time) is its rank."""
        self._hears.join()
        self._waiting.setdefault(lot, Ranking()).add(seat, deadline)

    def leave(self, lot: str, seat: Seat) -> None:
        """It does not wait any more."""
        ranking = self._waiting.get(lot)
        if ranking is None:
            return
        ranking.discard(seat)
        if not ranking:
            del self._waiting[lot]
        if not self._waiting:
            self._hears.leave()

    def _room(self, lot: str) -> None:
        """There is room for one: whoever has been told already, or has its turn, is passed over."""
        ranking = self._waiting.get(lot)
        while ranking:
            seat = ranking.first()
            ranking.discard(seat)
            if seat.look_again():
                return
