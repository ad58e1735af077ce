"""What becomes of a request at a saturated pool, by its tier and by its quota
(`tier-priority-admission`).

    saturated, and the request is             verdict
    covered by its tenant's quota             wait
    interactive, and over the quota or        drop: its sender would rather know than wait
    classified by none
    anything else                             refuse

The gate that tells saturation is asked first, and lets through whatever it lets through. It counts
as saturated when its budget is 0; one that is open and has only given out what its last reading
allows ends no request.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from async_processor.admission.base import (
    Candidate,
    Classification,
    Drop,
    Gate,
    GateState,
    Refuse,
    Verdict,
    Wait,
)
from async_processor.listeners import Leave
from async_processor.wire import tiers
from async_processor.wire.tiers import Tier


class TierGate:
    """Three verdicts in the place of a refusal by `gate`; `tier_label` names a queue's label."""

    def __init__(self, gate: Gate, *, tier_label: str) -> None:
        self._gate = gate
        self._tier_label = tier_label

    async def start(self) -> None:
        await self._gate.start()

    async def stop(self) -> None:
        await self._gate.stop()

    def budget(self) -> float:
        return self._gate.budget()

    def permits(self, workers: int) -> int:
        """All of them at a saturated pool: whoever is to be dropped has to come here first."""
        return self._gate.permits(workers) if self._gate.budget() > 0 else workers

    async def admit(self, candidate: Candidate) -> Verdict:
        match await self._gate.admit(candidate):
            case (Refuse() | Wait()) as held_back:
                return self._held_back(candidate, held_back)
            case verdict:
                return verdict

    def _held_back(self, candidate: Candidate, by: Refuse | Wait) -> Verdict:
        if candidate.classification is Classification.RESERVED:
            return Wait(reason=by.reason, message=by.message)
        if self._gate.budget() <= 0 and self._is_urgent(candidate):
            return Drop(message=f"the pool is saturated: {by.message}")
        return by if isinstance(by, Refuse) else Refuse(reason=by.reason, message=by.message)

    def _is_urgent(self, candidate: Candidate) -> bool:
        return tiers.read(candidate.labels.get(self._tier_label, "")) is Tier.INTERACTIVE

    def subscribe(self, wake: Callable[[], None]) -> Leave:
        return self._gate.subscribe(wake)

    async def room(self, lot: str) -> int | None:
        return await self._gate.room(lot)

    def on_room(self, recall: Callable[[str], None]) -> Leave:
        return self._gate.on_room(recall)

    def state(self) -> GateState:
        return msgspec.structs.replace(self._gate.state(), type="tier-priority-admission")
