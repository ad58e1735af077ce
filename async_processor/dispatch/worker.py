"""Brings one delivery to its end: admission, the call, the outcome.

`process` always settles what it was given, unless the lease is lost: then somebody else will. When
it is cut off (`Held.interrupt`), the reason decides the outcome.
"""

from __future__ import annotations

import asyncio
import random

from msgspec import structs

from async_processor.clock import Clock
from async_processor.dispatch.parking_lots import ParkingLots
from async_processor.dispatch.passage import Passage
from async_processor.dispatch.route import Route
from async_processor.dispatch.stay import Stay
from async_processor.errors import BrokerUnavailable
from async_processor.inference import usage
from async_processor.inference.base import Answer, Call, Engine, Failure, NoAnswer, Reply
from async_processor.one_loop import OneLoop
from async_processor.settlement import decision as decisions
from async_processor.settlement.decision import Decision, Ending
from async_processor.settlement.held import Interruption, Phase
from async_processor.settlement.results import Progress
from async_processor.settlement.settings import RetrySettings
from async_processor.settlement.settle import dispatched_before
from async_processor.telemetry.logs import get_logger
from async_processor.transport.base import Delivery, Park, Release, Transport
from async_processor.wire.envelope import Envelope, InvalidMessage
from async_processor.wire.result import Timings

_log = get_logger(__name__)


class Worker(OneLoop):
    """What every request of this process goes through. Keeps no state of a request."""

    def __init__(
        self,
        transport: Transport,
        engine: Engine,
        lots: ParkingLots,
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
        self._passage = Passage(transport.clock, lots, gate_wait_timeout=gate_wait_timeout)

    async def process(self, stay: Stay) -> Ending | None:
        """Bring a delivery to its end; returns which, None when its lease was lost."""
        held = stay.held
        held.run_by(asyncio.current_task(self.loop))
        decision = await self._decide(stay)
        held.enter(Phase.SETTLING)
        stay.end_tickets()
        if decision is None:
            return None
        settled = await stay.route.settler.settle(
            held.delivery, decision, dispatched=held.started_at is not None
        )
        if settled and decision.ending.final:
            stay.settled()
        if isinstance(decision.outcome, Park):
            stay.route.parked.tell(decision.outcome.lot)
        return decision.ending if settled else None

    async def _decide(self, stay: Stay) -> Decision | None:
        held, route = stay.held, stay.route
        if held.interruption is not None:
            return _interrupted(held.interruption, stay)
        try:
            return await self._run(stay)
        except asyncio.CancelledError:
            interruption = held.cut_off()
            if interruption is None:
                raise
            return _interrupted(interruption, stay)
        except BrokerUnavailable as error:
            # A refusal lets the queue rest, so that this is not tried again at once.
            _log.warning("payload_not_read", queue_id=route.queue.id, error=str(error))
            return Decision(outcome=Release(), ending=Ending.REFUSED)
        except Exception as error:  # noqa: BLE001 - the request must still get its one result
            _log.exception("request_failed_unexpectedly", queue_id=route.queue.id)
            return _unexpected(error, held.delivery, route)

    async def _run(self, stay: Stay) -> Decision:
        delivery, triage = stay.held.delivery, stay.route.triage
        decision = triage.examine(delivery, now=self._clock.now(), cancelled=stay.cancelled)
        if decision is None:
            decision = await self._passage.take(stay)
        if decision is not None:
            return decision
        payload = await self._payload(stay)
        if payload is None:
            return triage.payload_gone(stay.envelope)
        if fault := triage.payload_fault(payload):
            return triage.refused(stay.envelope, fault)
        return await self._dispatch(stay, payload)

    async def _payload(self, stay: Stay) -> bytes | None:
        payload = stay.envelope.request.payload
        if payload is not None:
            return payload
        return await self._transport.stored_payload(stay.held.delivery)

    async def _dispatch(self, stay: Stay, payload: bytes) -> Decision:
        route, request = stay.route, stay.envelope.request
        left = request.deadline - self._clock.now()
        if left <= 0:
            return route.triage.expired(stay.envelope, "the deadline passed before the call")
        try:
            out = await route.bodies.outgoing(request, payload)
            headers = route.headers[stay.lane].for_request(request, out.content_type)
        except InvalidMessage as error:
            return route.triage.refused(stay.envelope, str(error))
        call = Call(
            url=route.url(request.endpoint),
            headers=headers,
            body=out.body,
            timeout=min(self._request_timeout, left),
            payload=out.payload,
        )
        started = self._start(stay)
        reply = await self._engine.send(call)
        timings = self._measured(stay, reply, started)
        return self._judge(stay, await _transformed(stay, reply), timings)

    def _start(self, stay: Stay) -> float:
        """The call goes out now."""
        held, metrics, tenants = stay.held, stay.route.metrics, stay.route.pool.tenants
        started = self._clock.monotonic()
        stay.seat.dispatched()
        if not dispatched_before(held.delivery):
            metrics.request_counted()
            if tenants is not None:
                tenants.started(stay.envelope.request.metadata)
        metrics.dispatched()
        metrics.queue_residence((started - held.claimed_at) * 1000)
        held.started_at = started
        held.enter(Phase.IN_FLIGHT)
        return started

    def _measured(self, stay: Stay, reply: Reply, started: float) -> Timings:
        took = (self._clock.monotonic() - started) * 1000
        stay.route.metrics.inference_latency(took)
        _count_answer(reply, stay.route)
        if isinstance(reply, Answer) and reply.status in decisions.FULL:
            stay.shed()
        return Timings(
            queued_ms=round((started - stay.held.claimed_at) * 1000), inference_ms=round(took)
        )

    def _judge(self, stay: Stay, reply: Reply, timings: Timings) -> Decision:
        return decisions.after_attempt(
            stay.envelope,
            reply,
            Progress(attempts=stay.envelope.retry_count + 1, timings=timings),
            now=self._clock.now(),
            route=stay.route.results,
            settings=self._retry,
            random=random.random,
        )


async def _transformed(stay: Stay, reply: Reply) -> Reply:
    """A good answer as its result shall hold it."""
    if not isinstance(reply, Answer) or not 200 <= reply.status < 300:
        return reply
    body = await stay.route.bodies.incoming(stay.envelope.request, reply.body)
    return reply if body is reply.body else structs.replace(reply, body=body)


def _count_answer(reply: Reply, route: Route) -> None:
    if not isinstance(reply, Answer):
        return
    if reply.status == decisions.SHED:
        route.metrics.shed(reply.dropped_reason)
    elif 200 <= reply.status < 300:
        used = usage.read(reply.body)
        if used is not None:
            route.metrics.tokens(used.prompt_tokens, used.completion_tokens)


def _interrupted(interruption: Interruption, stay: Stay) -> Decision | None:
    match interruption:
        case Interruption.LEASE_LOST:
            return None
        case Interruption.CANCELLED if isinstance(stay.held.delivery.message, Envelope):
            return stay.route.triage.cancelled(stay.envelope)
        case _:
            return Decision(outcome=Release(body=_sent_body(stay)), ending=Ending.RELEASED)


def _sent_body(stay: Stay) -> bytes | None:
    """The message with a note that it was sent, so that it is not counted as new again."""
    if stay.held.started_at is None or dispatched_before(stay.held.delivery):
        return None
    return stay.envelope.rewritten(
        retry_count=stay.envelope.retry_count,
        request_queue_name=stay.route.queue.queue_name,
        dispatched=True,
    )


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
