"""A gate whose refusals become waiting (`wait-on-refuse`).

A refusal into a lot stays one: it concerns one tenant, and that tenant's requests, waiting in
memory, would take the slots that the others' need. In its lot in the broker a request takes no
slot, and is called back when there is room, so that waiting in memory would spare nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from async_processor.admission.base import Candidate, Gate, GateState, Refuse, Verdict, Wait
from async_processor.listeners import Leave


class Patience:
    """Whatever `gate` says, but whom it refuses into no lot waits in memory for it to change."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def start(self) -> None:
        await self._gate.start()

    async def stop(self) -> None:
        await self._gate.stop()

    def budget(self) -> float:
        return self._gate.budget()

    def permits(self, workers: int) -> int:
        return self._gate.permits(workers)

    async def admit(self, candidate: Candidate) -> Verdict:
        match await self._gate.admit(candidate):
            case Refuse(reason=reason, message=message, lot=""):
                return Wait(reason=reason, message=message)
            case verdict:
                return verdict

    def subscribe(self, wake: Callable[[], None]) -> Leave:
        return self._gate.subscribe(wake)

    async def room(self, lot: str) -> int | None:
        return await self._gate.room(lot)

    def on_room(self, recall: Callable[[str], None]) -> Leave:
        return self._gate.on_room(recall)

    def state(self) -> GateState:
        return msgspec.structs.replace(self._gate.state(), type="wait-on-refuse")
