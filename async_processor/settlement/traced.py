"""A settler that tells the request's span how it ended."""

from __future__ import annotations

from async_processor.settlement.decision import Decision
from async_processor.settlement.reaper import RetryPromoter
from async_processor.settlement.settle import Settler
from async_processor.telemetry import tracing
from async_processor.telemetry.metrics import QueueMetrics
from async_processor.telemetry.tracing import RequestIdentity, Tracing
from async_processor.transport.base import Delivery, Post, Release, Retry, Transport
from async_processor.wire.envelope import Envelope


class TracedSettler(Settler):
    """Requests that expire in the queue have no span to tell."""

    def __init__(
        self,
        transport: Transport,
        metrics: QueueMetrics,
        retries: RetryPromoter,
        *,
        queue_id: str,
        spans: Tracing,
    ) -> None:
        super().__init__(transport, metrics, retries, queue_id=queue_id)
        self._queue_id = queue_id
        self._spans = spans

    async def settle(self, delivery: Delivery, decision: Decision, *, dispatched: bool) -> bool:
        """Like `Settler.settle`; `re-enqueue` is the span of storing a request that was sent."""
        if category := _category(decision):
            tracing.failed(category)
        message = delivery.message
        if not (isinstance(message, Envelope) and _stores_again(decision, dispatched=dispatched)):
            return await super().settle(delivery, decision, dispatched=dispatched)
        identity = RequestIdentity(
            request_id=message.request.id,
            queue_id=self._queue_id,
            queue_name=delivery.queue_name,
            retry_count=message.retry_count,
        )
        with self._spans.stored_again(identity):
            return await super().settle(delivery, decision, dispatched=dispatched)


def _stores_again(decision: Decision, *, dispatched: bool) -> bool:
    outcome = decision.outcome
    return isinstance(outcome, Retry) or (isinstance(outcome, Release) and dispatched)


def _category(decision: Decision) -> str:
    """The kind of failure; of one that needs nobody (expired, cancelled, dropped) its result's."""
    code = decision.outcome.result.error_code if isinstance(decision.outcome, Post) else None
    return decision.category.value or (code.value if code else "")
