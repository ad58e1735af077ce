"""Executes decisions: the one place where an outcome is written and counted.

A result is counted only when the broker confirmed that it stands; an outcome that came too late
(the lease was lost) counts nothing, for whoever has the message now will count it.
"""

from __future__ import annotations

from async_processor.settlement.decision import Decision, Ending
from async_processor.settlement.reaper import RetryPromoter
from async_processor.settlement.trouble import Trouble
from async_processor.telemetry.logs import get_logger
from async_processor.telemetry.metrics import QueueMetrics
from async_processor.transport.base import Delivery, Retry, Settlement, Transport
from async_processor.wire.envelope import Envelope


class Settler:
    """Settles the deliveries of one queue."""

    def __init__(
        self,
        transport: Transport,
        metrics: QueueMetrics,
        retries: RetryPromoter,
        *,
        queue_id: str,
    ) -> None:
        self._transport = transport
        self._metrics = metrics
        self._retries = retries
        self._log = get_logger(__name__).bind(queue_id=queue_id)
        self.trouble = Trouble(transport.clock, queue_id=queue_id)

    async def settle(self, delivery: Delivery, decision: Decision, *, dispatched: bool) -> bool:
        """Write the outcome; returns whether it took effect.

        `dispatched` says whether this stay made a call, for `request_total` counts a request at
        its first dispatch, or here.
        """
        self.trouble.note(decision)
        settlement = await self._transport.settle(delivery, decision.outcome)
        done = settlement is not Settlement.GONE
        if done:
            self._count(delivery, decision, dispatched=dispatched)
            if isinstance(decision.outcome, Retry):
                self._retries.expect(decision.outcome.due_at)
        match settlement:
            case Settlement.UNCONFIRMED:
                self._metrics.unconfirmed()
            case Settlement.BURIED:
                self._metrics.dead_letter("no_result_queue")
        self._log.debug(
            "outcome" if done else "outcome_too_late",
            request_id=_id(delivery),
            ending=decision.ending.value,
            category=decision.category.value,
            deliveries=delivery.deliveries,
        )
        return done

    def _count(self, delivery: Delivery, decision: Decision, *, dispatched: bool) -> None:
        ending = decision.ending
        if ending.final and not dispatched and not dispatched_before(delivery):
            self._metrics.request_counted()
        match ending:
            case Ending.SUCCEEDED:
                self._metrics.succeeded()
            case Ending.FAILED | Ending.INVALID | Ending.POISONOUS:
                self._metrics.failed(decision.category.value)
            case Ending.EXPIRED:
                self._metrics.deadline_exceeded()
            case Ending.RETRIED:
                self._metrics.retry_scheduled(decision.category.value)
            case Ending.IMPATIENT:
                self._metrics.gate_wait_requeued()
            case _:
                pass  # cancelled, dropped, or it comes back: none of the three outcomes
        if ending in (Ending.INVALID, Ending.POISONOUS):
            self._metrics.dead_letter(ending.value)


def dispatched_before(delivery: Delivery) -> bool:
    """Whether an earlier stay of this message, here or elsewhere, has made a call."""
    message = delivery.message
    sent = isinstance(message, Envelope) and (message.dispatched or message.retry_count > 0)
    return sent or delivery.deliveries > 0


def _id(delivery: Delivery) -> str:
    message = delivery.message
    return message.request.id if isinstance(message, Envelope) else message.id
