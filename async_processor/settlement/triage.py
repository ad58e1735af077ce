"""Looks at a claimed message before anything is spent on it (pure).

Whatever ends a request without a call is found here, in the order in which it counts: unreadable,
invalid, cancelled, expired, poisonous.
"""

from __future__ import annotations

import msgspec

from async_processor.settlement import results
from async_processor.settlement.decision import Category, Decision, Ending
from async_processor.settlement.routing import ResultRoute
from async_processor.transport.base import Bury, Delivery, Post, Release
from async_processor.wire.envelope import Envelope, InvalidMessage
from async_processor.wire.result import ErrorCode


class Triage(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The rules of one queue; `payload_limit` is in bytes."""

    route: ResultRoute
    max_deliveries: int
    payload_limit: int

    def examine(self, delivery: Delivery, *, now: float, cancelled: bool) -> Decision | None:
        """What ends this delivery without a call; None lets it go on."""
        message = delivery.message
        if isinstance(message, InvalidMessage):
            return self.invalid(message)
        fault = self.route.fault(message) or self._payload_fault(message)
        if fault:
            return self.refused(message, fault)
        if cancelled:
            return self.cancelled(message)
        if now >= message.request.deadline:
            return self.expired(message, "the deadline passed while the request waited")
        if delivery.deliveries >= self.max_deliveries:
            return self._poisonous(delivery, message)
        return None

    def examine_expired(self, delivery: Delivery, *, now: float, cancelled: bool) -> Decision:
        """Like `examine`, of a delivery claimed because its score has passed.

        The deadline rules, not the score: what was found early goes back under its own deadline.
        """
        decision = self.examine(delivery, now=now, cancelled=cancelled)
        if decision is not None:
            return decision
        assert isinstance(delivery.message, Envelope)  # noqa: S101 - `examine` ends all others
        return Decision(outcome=Release(score=delivery.message.score), ending=Ending.RELEASED)

    def invalid(self, error: InvalidMessage) -> Decision:
        """An unreadable message: to the dead letters, with a result if the sender is known."""
        post = self.route.post_invalid(error, results.invalid(error)) if error.id else None
        return self._buried(str(error), post, Ending.INVALID, Category.INVALID)

    def refused(self, envelope: Envelope, fault: str) -> Decision:
        """A readable message that breaks a rule."""
        result = results.unanswered(envelope, ErrorCode.INVALID_REQUEST, fault)
        return self._buried(
            fault, self.route.post(envelope, result), Ending.INVALID, Category.INVALID
        )

    def cancelled(self, envelope: Envelope) -> Decision:
        """The sender has taken the request back."""
        result = results.unanswered(
            envelope, ErrorCode.CANCELLED, "the request was cancelled by its sender"
        )
        return Decision(outcome=self.route.post(envelope, result), ending=Ending.CANCELLED)

    def expired(self, envelope: Envelope, message: str) -> Decision:
        """The deadline passed without an answer; tells how the last attempt failed, if one did."""
        if envelope.last_error:
            message += f"; the last attempt failed: {envelope.last_error}"
        result = results.unanswered(envelope, ErrorCode.DEADLINE_EXCEEDED, message)
        return Decision(outcome=self.route.post(envelope, result), ending=Ending.EXPIRED)

    def dropped(self, envelope: Envelope, message: str) -> Decision:
        """A gate ended the request for good."""
        result = results.unanswered(envelope, ErrorCode.GATE_DROPPED, message)
        return Decision(outcome=self.route.post(envelope, result), ending=Ending.DROPPED)

    def payload_gone(self, envelope: Envelope) -> Decision:
        """The stored body that the message names is not there any more."""
        message = f"the stored payload {envelope.payload_ref!r} is gone"
        result = results.unanswered(envelope, ErrorCode.PAYLOAD_UNAVAILABLE, message)
        return Decision(
            outcome=self.route.post(envelope, result),
            ending=Ending.FAILED,
            category=Category.PAYLOAD,
        )

    def payload_fault(self, payload: bytes) -> str:
        """Why a payload is refused; empty when it is not."""
        if len(payload) <= self.payload_limit:
            return ""
        return f"payload: {len(payload)} bytes are over the limit of {self.payload_limit}"

    def _payload_fault(self, envelope: Envelope) -> str:
        payload = envelope.request.payload
        return "" if payload is None else self.payload_fault(payload)

    def _poisonous(self, delivery: Delivery, envelope: Envelope) -> Decision:
        message = (
            f"delivered {delivery.deliveries} times without an outcome; "
            "it probably kills the process that runs it"
        )
        result = results.unanswered(envelope, ErrorCode.MAX_DELIVERIES, message)
        return self._buried(
            message, self.route.post(envelope, result), Ending.POISONOUS, Category.POISON
        )

    @staticmethod
    def _buried(reason: str, post: Post | None, ending: Ending, category: Category) -> Decision:
        return Decision(outcome=Bury(reason=reason, post=post), ending=ending, category=category)
