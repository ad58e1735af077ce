"""Asking a gate on behalf of a request: at once, and in turn until it says something but wait.

Those who wait in memory ask one at a time. Whoever is told to wait on knows that the gate is still
closed, and all others stay quiet until it changes. Whoever leaves (let through, refused, dropped,
cut off) does not know that of them, and hands its turn on.
"""

from __future__ import annotations

from async_processor.admission.base import (
    Candidate,
    Continue,
    Drop,
    Gate,
    Reason,
    Refuse,
    Verdict,
    Wait,
)
from async_processor.clock import Clock
from async_processor.dispatch.parking import ParkingLot
from async_processor.dispatch.parking_lots import ParkingLots
from async_processor.dispatch.stay import Stay
from async_processor.settlement.decision import Decision, Ending
from async_processor.settlement.held import Phase
from async_processor.telemetry.logs import get_logger
from async_processor.transport.base import Release

_log = get_logger(__name__)


class Asking:
    """Lets a request that has to wait do so in the gate's lot. `patience` is in seconds."""

    def __init__(self, clock: Clock, lots: ParkingLots, *, patience: float) -> None:
        self._clock = clock
        self._lots = lots
        self._patience = patience

    async def __call__(
        self, gate: Gate, stay: Stay, candidate: Candidate
    ) -> Continue | Refuse | Drop | Decision:
        """The gate's verdict; or how the stay ends, when deadline or patience end the waiting."""
        verdict = await self._ask(gate, stay, candidate)
        if not isinstance(verdict, Wait):
            return verdict
        stay.route.metrics.gate_decision(verdict.reason.value)
        stay.held.enter(Phase.PARKED)
        with self._lots.presence(gate) as lot:
            return await self._wait(lot, gate, stay, candidate)

    async def _wait(
        self, lot: ParkingLot, gate: Gate, stay: Stay, candidate: Candidate
    ) -> Continue | Refuse | Drop | Decision:
        give_up = self._clock.monotonic() + self._patience
        while True:
            ended = await self._park(lot, stay, give_up)
            if ended is not None:
                return ended
            verdict = await self._ask_in_turn(lot, gate, stay, candidate)
            if isinstance(verdict, Continue):
                stay.held.enter(Phase.QUEUED)
            if not isinstance(verdict, Wait):
                return verdict

    async def _ask_in_turn(
        self, lot: ParkingLot, gate: Gate, stay: Stay, candidate: Candidate
    ) -> Verdict:
        verdict: Verdict | None = None
        try:
            verdict = await self._ask(gate, stay, candidate)
        finally:
            if not isinstance(verdict, Wait):
                lot.wake_next()
        return verdict

    async def _ask(self, gate: Gate, stay: Stay, candidate: Candidate) -> Verdict:
        """A gate that fails refuses: it counts as an error, and fails safe."""
        try:
            return await gate.admit(candidate)
        except Exception as error:  # noqa: BLE001 - whatever it is, the request must not pass
            _log.exception("gate_failed", queue_id=stay.route.queue.id)
            return Refuse(reason=Reason.ERROR, message=type(error).__name__)

    async def _park(self, lot: ParkingLot, stay: Stay, give_up: float) -> Decision | None:
        """Wait for a turn; the deadline and the patience end the stay."""
        patience = give_up - self._clock.monotonic()
        deadline = stay.envelope.request.deadline
        left = deadline - self._clock.now()
        try:
            await lot.wait(deadline, max(0.0, min(patience, left)))
        except TimeoutError:
            if left <= patience:
                return stay.route.triage.expired(
                    stay.envelope, "the deadline passed at a closed gate"
                )
            return Decision(outcome=Release(), ending=Ending.IMPATIENT)
        return None
