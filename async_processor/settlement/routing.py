"""Where results of a queue go, and where a message may not send them (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from async_processor.transport.base import Post
from async_processor.wire.envelope import Envelope, InvalidMessage
from async_processor.wire.names import Reserved, is_mailbox, result_queue_fault
from async_processor.wire.result import Result

MAILBOX_LIFETIME: Final = 24 * 3600.0
"""Seconds that a per-request result list outlives its push."""


class ResultRoute(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The way of one queue's results.

    `own` is the queue entry's `result_queue_name`, which beats the message's; `default` is the
    transport's. `lifetime` (seconds) makes the result list expire. `allowed` are the patterns
    that a message's choice must match; `reserved` is where no message may send its result.
    """

    queue_name: str
    default: str
    own: str = ""
    lifetime: float | None = None
    allowed: Sequence[str] = ("*",)
    reserved: Reserved = Reserved()

    def post(self, envelope: Envelope, result: Result) -> Post:
        """The outcome that ends this request with this result."""
        if self.fault(envelope):
            return self._posted(result, self.own or self.default)
        return self._posted(result, self.own or envelope.result_queue_name or self.default)

    def post_invalid(self, error: InvalidMessage, result: Result) -> Post:
        """Like `post`, for a message that could not be read whole."""
        if self.own or not error.result_queue_name:
            return self._posted(result, self.own or self.default)
        named = error.result_queue_name
        if self._name_fault(named, error.id, error.request_token):
            return self._posted(result, self.default)
        return self._posted(result, named)

    def fault(self, envelope: Envelope) -> str:
        """Why the message's own result queue is refused; empty when it is not."""
        named = envelope.result_queue_name
        if not named:
            return ""
        if self.own:
            return self._override_fault(envelope)
        return self._name_fault(named, envelope.request.id, envelope.request_token)

    def _override_fault(self, envelope: Envelope) -> str:
        """A sender that waits at its mailbox would wait for ever; any other name just yields."""
        if not is_mailbox(envelope.result_queue_name, envelope.request.id, envelope.request_token):
            return ""
        return (
            f"queue {self.queue_name!r} sends every result to {self.own!r}, so nothing would "
            "reach this request's mailbox; read the results there"
        )

    def _name_fault(self, named: str, request_id: str, token: str) -> str:
        if named == self.default or is_mailbox(named, request_id, token):
            return ""  # the operator's own choice may lie in the queue's slot, as on a cluster
        fault = result_queue_fault(named, self.reserved)
        if fault:
            return fault
        if any(fnmatchcase(named, pattern) for pattern in self.allowed):
            return ""
        return f"queue {self.queue_name!r} does not allow results to go to {named!r}"

    def _posted(self, result: Result, result_queue: str) -> Post:
        mailbox = is_mailbox(result_queue, result.id, result.request_token)
        lifetime = MAILBOX_LIFETIME if mailbox else self.lifetime
        return Post(result=result, result_queue=result_queue, expires_after=lifetime)
