"""Decides what becomes of a request after an attempt (pure; contract, section 5)."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from async_processor.inference.base import Answer, NoAnswer, Reply
from async_processor.settlement import results, retry
from async_processor.settlement.results import Progress
from async_processor.settlement.routing import ResultRoute
from async_processor.settlement.settings import RetrySettings
from async_processor.telemetry.masking import one_line
from async_processor.transport.base import Outcome, Retry
from async_processor.wire.envelope import Envelope
from async_processor.wire.result import ErrorCode

TRANSIENT_STATUSES: Final = frozenset({408, 425, 429})
SHED: Final = 429
FULL: Final = (SHED, 503)
"""What a pool answers that can take no more now."""
LONGEST_FAULT: Final = 200


class Ending(StrEnum):
    """How a stay with this process ended, for metrics and the log."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    INVALID = "invalid"
    POISONOUS = "poisonous"
    DROPPED = "dropped"
    RETRIED = "retried"
    RELEASED = "released"
    REFUSED = "refused"
    PARKED = "parked"

    IMPATIENT = "impatient"
    """It waited too long at a gate and goes back."""

    @property
    def final(self) -> bool:
        """Whether the request has its result."""
        return self not in _COMES_BACK


_COMES_BACK: Final = frozenset(
    {Ending.RETRIED, Ending.RELEASED, Ending.REFUSED, Ending.PARKED, Ending.IMPATIENT}
)


class Category(StrEnum):
    """The kinds of failure that need different people."""

    NONE = ""
    AUTH = "AUTH_ERROR"
    CLIENT = "CLIENT_ERROR"
    SERVER = "SERVER_ERROR"
    NETWORK = "NETWORK_ERROR"
    RATE_LIMIT = "RATE_LIMIT"
    INVALID = "INVALID_REQUEST"
    POISON = "MAX_DELIVERIES"
    PAYLOAD = "PAYLOAD_UNAVAILABLE"


class Decision(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """An outcome for the transport, and why in one word each for metrics and the log.

    `fault` says in short words, without secrets, how the call failed; empty when none did.
    """

    outcome: Outcome
    ending: Ending
    category: Category = Category.NONE
    fault: str = ""


def after_attempt(
    envelope: Envelope,
    reply: Reply,
    progress: Progress,
    *,
    now: float,
    route: ResultRoute,
    settings: RetrySettings,
    random: retry.Random,
) -> Decision:
    """What follows from a reply; `now` is Unix time in seconds by the broker's clock."""
    match reply:
        case Answer(status=status) if 200 <= status < 300:
            return _posted(envelope, reply, progress, route, Ending.SUCCEEDED)
        case _ if not _transient(reply):
            return _posted(envelope, reply, progress, route, Ending.FAILED)
        case _ if now >= envelope.request.deadline:
            return _posted(envelope, reply, progress, route, Ending.EXPIRED)
        case _ if settings.max_attempts and progress.attempts >= settings.max_attempts:
            return _posted(envelope, reply, progress, route, Ending.FAILED)
        case _:
            return _retried(envelope, reply, now, route, settings, random)


def failed(envelope: Envelope, reply: NoAnswer, progress: Progress, route: ResultRoute) -> Decision:
    """No answer, and no use in trying again."""
    return _posted(envelope, reply, progress, route, Ending.FAILED)


def _transient(reply: Reply) -> bool:
    if isinstance(reply, NoAnswer):
        return reply.transient
    return reply.status in TRANSIENT_STATUSES or (reply.status >= 500 and reply.status != 501)


def _posted(
    envelope: Envelope, reply: Reply, progress: Progress, route: ResultRoute, ending: Ending
) -> Decision:
    if isinstance(reply, Answer):
        result = results.answered(envelope, reply, progress)
    elif ending is Ending.EXPIRED:
        message = f"the deadline passed during attempt {progress.attempts}: {reply.message}"
        result = results.unanswered(envelope, ErrorCode.DEADLINE_EXCEEDED, message, progress)
    else:
        result = results.unanswered(envelope, ErrorCode.INFERENCE_ERROR, reply.message, progress)
    outcome = route.post(envelope, result)
    if ending is Ending.SUCCEEDED:
        return Decision(outcome=outcome, ending=ending)
    return Decision(
        outcome=outcome, ending=ending, category=category_of(reply), fault=fault_of(reply)
    )


def _retried(
    envelope: Envelope,
    reply: Reply,
    now: float,
    route: ResultRoute,
    settings: RetrySettings,
    random: retry.Random,
) -> Decision:
    number = envelope.retry_count + 1
    due = retry.due_at(
        now=now,
        deadline=envelope.request.deadline,
        retry=number,
        retry_after=reply.retry_after if isinstance(reply, Answer) else None,
        settings=settings,
        random=random,
    )
    fault = fault_of(reply)
    body = envelope.rewritten(
        retry_count=number, request_queue_name=route.queue_name, last_error=fault
    )
    return Decision(
        outcome=Retry(body=body, due_at=due),
        ending=Ending.RETRIED,
        category=category_of(reply),
        fault=fault,
    )


def fault_of(reply: Reply) -> str:
    """How a call failed: one line of at most 200 characters, which travels with the request."""
    if isinstance(reply, Answer):
        return f"HTTP {reply.status}"
    return one_line(reply.message)[:LONGEST_FAULT]


def category_of(reply: Reply) -> Category:
    """The kind of failure that a reply stands for."""
    if isinstance(reply, NoAnswer):
        return Category.NETWORK
    if reply.status in (401, 403):
        return Category.AUTH
    if reply.status == SHED:
        return Category.RATE_LIMIT
    return Category.SERVER if reply.status >= 500 else Category.CLIENT
