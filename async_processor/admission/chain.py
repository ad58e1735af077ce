"""Several gates as one (`composite`): all of them must let a request through.

A request holds what all of them reserved, or nothing: what the first ones gave is refunded when a
later one holds the request back, fails, or is cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from async_processor.admission.base import Candidate, Continue, Gate, GateState, Ticket, Verdict
from async_processor.admission.tickets import end_all
from async_processor.listeners import Leave, all_of


class Chain:
    """The smallest budget, and all or none of the reservations. `gates` are asked in order."""

    def __init__(self, gates: Sequence[Gate]) -> None:
        self._gates = tuple(gates)

    async def start(self) -> None:
        for gate in self._gates:
            await gate.start()

    async def stop(self) -> None:
        for gate in reversed(self._gates):
            await gate.stop()

    def budget(self) -> float:
        return min(gate.budget() for gate in self._gates)

    def permits(self, workers: int) -> int:
        return min(gate.permits(workers) for gate in self._gates)

    async def admit(self, candidate: Candidate) -> Verdict:
        tickets: list[Ticket] = []
        lot = ""
        try:
            for gate in self._gates:
                verdict = await gate.admit(candidate)
                if not isinstance(verdict, Continue):
                    return verdict
                tickets.append(verdict.ticket)
                candidate = candidate.classified(verdict.classification)
                lot = verdict.lot or lot
            bundle, tickets = Bundle(tickets), []
        finally:
            end_all(tickets, used=False)
        return Continue(ticket=bundle, classification=candidate.classification, lot=lot)

    def subscribe(self, wake: Callable[[], None]) -> Leave:
        return all_of([gate.subscribe(wake) for gate in self._gates])

    async def room(self, lot: str) -> int | None:
        """That of the gate whose lot it is."""
        for gate in self._gates:
            room = await gate.room(lot)
            if room is not None:
                return room
        return None

    def on_room(self, recall: Callable[[str], None]) -> Leave:
        return all_of([gate.on_room(recall) for gate in self._gates])

    def state(self) -> GateState:
        """Reading and threshold of the tightest gate that has a source, the reason of the tightest
        that has one; all must be readable."""
        states = sorted((gate.state() for gate in self._gates), key=lambda state: state.budget)
        tightest = states[0]
        shown = next((state for state in states if state.threshold is not None), tightest)
        reasons = (f"{state.type}: {state.reason}" for state in states if state.reason)
        return msgspec.structs.replace(
            shown,
            type="composite",
            budget=tightest.budget,
            available=all(state.available for state in states),
            reason=next(reasons, ""),
        )


class Bundle:
    """Tickets that end together, the last one first; one that fails does not keep the others."""

    def __init__(self, tickets: Sequence[Ticket]) -> None:
        self._tickets = tuple(tickets)

    def shed(self) -> None:
        for ticket in self._tickets:
            ticket.shed()

    def settled(self) -> None:
        for ticket in self._tickets:
            ticket.settled()

    def on_loss(self, cut_off: Callable[[], None]) -> None:
        for ticket in self._tickets:
            ticket.on_loss(cut_off)

    def release(self) -> None:
        end_all(list(self._tickets), used=True)

    def refund(self) -> None:
        end_all(list(self._tickets), used=False)
