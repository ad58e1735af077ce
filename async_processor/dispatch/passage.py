"""The way of a request through its gates to a worker's slot.

The queue's gate comes first, then the request's turn in its pool, then the pool's gate. Whoever
holds it back decides where it waits: in memory (the gate says wait), in the broker (refuse), or in
a lot of its queue (refused for a reason that does not concern the others in the queue).
"""

from __future__ import annotations

from async_processor.admission.base import (
    Candidate,
    Classification,
    Continue,
    Drop,
    Gate,
    Refuse,
)
from async_processor.clock import Clock
from async_processor.dispatch.asking import Asking
from async_processor.dispatch.merge.base import Ready
from async_processor.dispatch.parking_lots import ParkingLots
from async_processor.dispatch.stay import Stay
from async_processor.settlement.decision import Decision, Ending
from async_processor.transport.base import Park, Release


class Passage:
    """Takes requests through."""

    def __init__(self, clock: Clock, lots: ParkingLots, *, gate_wait_timeout: float) -> None:
        self._clock = clock
        self._ask = Asking(clock, lots, patience=gate_wait_timeout)

    async def take(self, stay: Stay) -> Decision | None:
        """Bring a request to a slot, with the gates' tickets in its stay.

        Returns a decision when its stay ends on the way.
        """
        candidate = await self._pass_queue_gate(stay)
        while not isinstance(candidate, Decision) and not stay.seat.has_slot:
            ended = await self._wait_for_turn(stay, candidate)
            if ended is not None:
                return ended
            if not stay.seat.has_slot:
                stay.refund()
                candidate = await self._pass_queue_gate(stay)
        if isinstance(candidate, Decision):
            return candidate
        passed = await self._pass(stay.route.pool.gate, stay, candidate)
        if isinstance(passed, Decision):
            return passed
        stay.admitted(candidate, passed)
        return None

    async def _pass_queue_gate(self, stay: Stay) -> Candidate | Decision:
        route = stay.route
        candidate = Candidate(envelope=stay.envelope, labels=route.queue.labels)
        passed = await self._pass(route.gate, stay, candidate)
        if isinstance(passed, Decision):
            return passed
        candidate = stay.admitted(candidate, passed)
        stay.lane = route.pool.merge.lane(route.queue, candidate.classification)
        return candidate

    async def _wait_for_turn(self, stay: Stay, candidate: Candidate) -> Decision | None:
        request = candidate.envelope.request
        ready = Ready(
            queue=stay.route.queue,
            request=request,
            since=stay.held.claimed_at,
            classification=candidate.classification,
            lot=stay.lot,
        )
        covered = candidate.classification is not Classification.OVERFLOW
        looks = stay.route.second_look
        if not covered:
            looks.wait(stay.lot, request.deadline, stay.seat)
        try:
            lot = await stay.seat.wait_for_turn(ready, max(0.0, self._left(stay)))
        except TimeoutError:
            return stay.route.triage.expired(
                candidate.envelope, "the deadline passed while the request waited for its turn"
            )
        finally:
            if not covered:
                looks.leave(stay.lot, stay.seat)
        return None if lot is None else Decision(outcome=Park(lot=lot), ending=Ending.PARKED)

    async def _pass(self, gate: Gate, stay: Stay, candidate: Candidate) -> Continue | Decision:
        """Ask a gate until it lets the request through or ends its stay."""
        verdict, metrics = await self._ask(gate, stay, candidate), stay.route.metrics
        match verdict:
            case Refuse(reason=reason, lot=lot):
                metrics.gate_decision(reason.value)
                return _refused(lot)
            case Drop(message=message):
                metrics.gate_decision("dropped")
                return stay.route.triage.dropped(candidate.envelope, message)
            case passed_or_ended:
                return passed_or_ended

    def _left(self, stay: Stay) -> float:
        """Seconds until the deadline."""
        return stay.envelope.request.deadline - self._clock.now()


def _refused(lot: str) -> Decision:
    """One that waits in a lot of its own does not stand in the way of its queue."""
    if lot:
        return Decision(outcome=Park(lot=lot), ending=Ending.PARKED)
    return Decision(outcome=Release(), ending=Ending.REFUSED)
