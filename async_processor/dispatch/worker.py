"""Brings one delivery to its end: admission, the call, the outcome.

`process` always settles what it was given, unless the lease is lost: then somebody else will. When
it is cut off (`Held.interrupt`), the reason decides the outcome.
"""

from __future__ import annotations

import asyncio
import random
from functools import partial

from async_processor.admission.base import (
    Candidate,
    Continue,
    Drop,
    Gate,
    Refuse,
    Ticket,
    Wait,
)
from async_processor.clock import Clock
from async_processor.dispatch.parking import ParkingLot
from async_processor.dispatch.route import Route
from async_processor.errors import BrokerUnavailable
from async_processor.inference import usage
from async_processor.inference.base import Answer, Call, Engine, Failure, NoAnswer, Reply
from async_processor.settlement import decision as decisions
from async_processor.settlement.decision import Decision, Ending
from async_processor.settlement.held import Held, Interruption, Phase
from async_processor.settlement.results import Progress
from async_processor.settlement.settings import RetrySettings
from async_processor.settlement.settle import dispatched_before
from async_processor.telemetry.logs import get_logger
from async_processor.transport.base import Delivery, Release, Transport
from async_processor.wire.envelope import Envelope, InvalidMessage
from async_processor.wire.result import Timings

_log = get_logger(__name__)


class Worker:
    """What every request of this process goes through. Keeps no state of a request."""

    def __init__(
        self,
        transport: Transport,
        engine: Engine,
        *,
        retry: RetrySettings,
        request_timeout: float,
        gate_wait_timeout: float,
    ) -> None:
        self._transport = transport
        self._engine = engine
        self._clock: Clock = transport.clock
        self._retry = retry
        self._request_timeout = request_timeout
        self._gate_wait_timeout = gate_wait_timeout
        self._lots: dict[int, ParkingLot] = {}

    async def process(self, held: Held, route: Route, *, cancelled: bool) -> Ending | None:
        """Bring a delivery to its end; returns which, None when its lease was lost.

        `cancelled` says that its sender had cancelled it when it was claimed.
        """
        held.run_by_current_task()
        tickets: list[Ticket] = []
        decision = await self._decide(held, route, tickets, cancelled=cancelled)
        held.enter(Phase.SETTLING)
        dispatched = held.started_at is not None
        await _end(tickets, used=dispatched)
        if decision is None:
            return None
        settled = await route.settler.settle(held.delivery, decision, dispatched=dispatched)
        return decision.ending if settled else None

    async def _decide(
        self, held: Held, route: Route, tickets: list[Ticket], *, cancelled: bool
    ) -> Decision | None:
        if held.interruption is not None:
            return _interrupted(held.interruption, held.delivery, route)
        try:
            return await self._run(held, route, tickets, cancelled=cancelled)
        except asyncio.CancelledError:
            interruption = held.cut_off()
            if interruption is None:
                raise
            return _interrupted(interruption, held.delivery, route)
        except BrokerUnavailable:
            return Decision(outcome=Release(), ending=Ending.RELEASED)
        except Exception as error:  # noqa: BLE001 - the request must still get its one result
            _log.exception("request_failed_unexpectedly", queue_id=route.queue.id)
            return _unexpected(error, held.delivery, route)

    async def _run(
        self, held: Held, route: Route, tickets: list[Ticket], *, cancelled: bool
    ) -> Decision:
        now = self._clock.now()
        decision = route.triage.examine(held.delivery, now=now, cancelled=cancelled)
        if decision is not None:
            return decision
        envelope = held.delivery.message
        assert isinstance(envelope, Envelope)  # noqa: S101 - triage ends all others
        candidate = Candidate(envelope=envelope, labels=route.queue.labels)
        for gate in (route.gate, route.pool.gate):
            passed = await self._pass(gate, held, route, candidate)
            if isinstance(passed, Decision):
                return passed
            passed.ticket.on_loss(partial(held.interrupt, Interruption.TICKET_LOST))
            tickets.append(passed.ticket)
            candidate = candidate.classified(passed.classification)
        payload = await self._payload(held.delivery, envelope)
        if payload is None:
            return route.triage.payload_gone(envelope)
        if fault := route.triage.payload_fault(payload):
            return route.triage.refused(envelope, fault)
        return await self._dispatch(held, route, envelope, payload)

    async def _pass(
        self, gate: Gate, held: Held, route: Route, candidate: Candidate
    ) -> Continue | Decision:
        """Ask a gate until it lets the request through or ends its stay."""
        give_up = self._clock.monotonic() + self._gate_wait_timeout
        parked = False
        while True:
            verdict = await gate.admit(candidate)
            match verdict:
                case Continue():
                    if parked:
                        held.enter(Phase.QUEUED)
                        self._lot(gate).passed()
                    return verdict
                case Refuse(reason=reason):
                    route.metrics.gate_decision(reason.value)
                    return Decision(outcome=Release(), ending=Ending.REFUSED)
                case Drop(message=message):
                    route.metrics.gate_decision("dropped")
                    return route.triage.dropped(candidate.envelope, message)
                case Wait(reason=reason):
                    if not parked:
                        route.metrics.gate_decision(reason.value)
                        held.enter(Phase.PARKED)
                        parked = True
            ended = await self._park(gate, route, candidate.envelope, give_up)
            if ended is not None:
                return ended

    async def _park(
        self, gate: Gate, route: Route, envelope: Envelope, give_up: float
    ) -> Decision | None:
        """Wait for the gate to change; the deadline and the patience end the stay."""
        deadline = envelope.request.deadline
        patience = give_up - self._clock.monotonic()
        left = deadline - self._clock.now()
        try:
            await self._lot(gate).wait(deadline, max(0.0, min(patience, left)))
        except TimeoutError:
            if left <= patience:
                return route.triage.expired(envelope, "the deadline passed at a closed gate")
            route.metrics.gate_wait_requeued()
            return Decision(outcome=Release(), ending=Ending.REFUSED)
        return None

    def _lot(self, gate: Gate) -> ParkingLot:
        lot = self._lots.get(id(gate))
        if lot is None:
            lot = self._lots[id(gate)] = ParkingLot(gate)
        return lot

    async def _payload(self, delivery: Delivery, envelope: Envelope) -> bytes | None:
        payload = envelope.request.payload
        return payload if payload is not None else await self._transport.stored_payload(delivery)

    async def _dispatch(
        self, held: Held, route: Route, envelope: Envelope, payload: bytes
    ) -> Decision:
        left = envelope.request.deadline - self._clock.now()
        if left <= 0:
            return route.triage.expired(envelope, "the deadline passed before the call")
        try:
            headers = route.headers.for_request(envelope.request)
        except InvalidMessage as error:
            return route.triage.refused(envelope, str(error))
        call = Call(
            url=route.url(envelope.request.endpoint),
            headers=headers,
            body=payload,
            timeout=min(self._request_timeout, left),
        )
        started = self._start(held, route)
        reply = await self._engine.send(call)
        return self._judge(held, route, envelope, reply, started)

    def _start(self, held: Held, route: Route) -> float:
        """The call goes out now."""
        started = self._clock.monotonic()
        route.pool.dispatched()
        if not dispatched_before(held.delivery):
            route.metrics.request_counted()
        route.metrics.dispatched()
        route.metrics.queue_residence((started - held.claimed_at) * 1000)
        held.started_at = started
        held.enter(Phase.IN_FLIGHT)
        return started

    def _judge(
        self, held: Held, route: Route, envelope: Envelope, reply: Reply, started: float
    ) -> Decision:
        took = (self._clock.monotonic() - started) * 1000
        route.metrics.inference_latency(took)
        _count_answer(reply, route)
        timings = Timings(
            queued_ms=round((started - held.claimed_at) * 1000), inference_ms=round(took)
        )
        return decisions.after_attempt(
            envelope,
            reply,
            Progress(attempts=envelope.retry_count + 1, timings=timings),
            now=self._clock.now(),
            route=route.results,
            settings=self._retry,
            random=random.random,
        )


async def _end(tickets: list[Ticket], *, used: bool) -> None:
    for ticket in reversed(tickets):
        await (ticket.release() if used else ticket.refund())


def _count_answer(reply: Reply, route: Route) -> None:
    if not isinstance(reply, Answer):
        return
    if reply.status == decisions.SHED:
        route.metrics.shed()
    elif 200 <= reply.status < 300:
        used = usage.read(reply.body)
        if used is not None:
            route.metrics.tokens(used.prompt_tokens, used.completion_tokens)


def _interrupted(interruption: Interruption, delivery: Delivery, route: Route) -> Decision | None:
    match interruption:
        case Interruption.LEASE_LOST:
            return None
        case Interruption.CANCELLED if isinstance(delivery.message, Envelope):
            return route.triage.cancelled(delivery.message)
        case _:
            return Decision(outcome=Release(), ending=Ending.RELEASED)


def _unexpected(error: Exception, delivery: Delivery, route: Route) -> Decision:
    """A fault of ours: the sender hears of it, and the message is kept for whoever looks."""
    message = f"internal error: {type(error).__name__}"
    if isinstance(delivery.message, InvalidMessage):
        return route.triage.invalid(delivery.message)
    return decisions.failed(
        delivery.message,
        NoAnswer(failure=Failure.UNSENDABLE, message=message),
        Progress(attempts=delivery.message.retry_count),
        route.results,
    )
