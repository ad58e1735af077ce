"""A gate whose refusals become waiting (`wait-on-refuse`)."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from async_processor.admission.base import Gate, GateState, Refuse, Verdict, Wait
from async_processor.wire.envelope import Envelope


class Patience:
    """Whatever `gate` says, but a request that it refuses waits in memory for it to change."""

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

    async def admit(self, envelope: Envelope) -> Verdict:
        match await self._gate.admit(envelope):
            case Refuse(reason=reason, message=message):
                return Wait(reason=reason, message=message)
            case verdict:
                return verdict

    def subscribe(self, wake: Callable[[], None]) -> None:
        self._gate.subscribe(wake)

    def state(self) -> GateState:
        return msgspec.structs.replace(self._gate.state(), type="wait-on-refuse")
