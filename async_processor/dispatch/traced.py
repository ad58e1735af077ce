"""A worker whose requests are traced."""

from __future__ import annotations

from collections.abc import Mapping

from async_processor.dispatch.stay import Stay
from async_processor.dispatch.worker import Worker
from async_processor.settlement.decision import Ending
from async_processor.telemetry import tracing
from async_processor.telemetry.tracing import RequestIdentity, Tracing
from async_processor.wire.envelope import Envelope, InvalidMessage


class TracedWorker:
    """Around a worker.

    A stay that made no call and comes back (refused, parked) is no span: there are too many.
    """

    def __init__(self, worker: Worker, spans: Tracing) -> None:
        self._worker = worker
        self._spans = spans

    async def process(self, stay: Stay) -> Ending | None:
        """Like `Worker.process`, in a span."""
        message = stay.held.delivery.message
        with self._spans.request(_identity(stay), _carrier(message)) as span:
            if isinstance(message, Envelope) and message.request.model:
                tracing.model(message.request.model)
            ending = await self._worker.process(stay)
            if stay.held.started_at is not None or (ending is not None and ending.final):
                span.end()
        return ending


def _identity(stay: Stay) -> RequestIdentity:
    delivery = stay.held.delivery
    message = delivery.message
    return RequestIdentity(
        request_id=delivery.request_id,
        queue_id=stay.route.queue.id,
        queue_name=stay.route.queue.queue_name,
        retry_count=message.retry_count if isinstance(message, Envelope) else 0,
    )


def _carrier(message: Envelope | InvalidMessage) -> Mapping[str, str]:
    """Where the producer's trace context stands: in the metadata, else in the headers."""
    if isinstance(message, InvalidMessage):
        return message.metadata
    request = message.request
    if "traceparent" in request.metadata:
        return request.metadata
    return {name.lower(): value for name, value in request.headers.items()}
