"""Writes results: what the sender reads, for every way in which a request can end (pure)."""

from __future__ import annotations

from typing import Final

import msgspec

from async_processor.inference.base import Answer
from async_processor.wire.envelope import Envelope, InvalidMessage
from async_processor.wire.result import ErrorCode, Result, Timings, error_payload

DROPPED_PAYLOAD: Final = '{"error": "Too Many Requests", "code": 429}'


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a request came: attempts made so far, and the times of the last one."""

    attempts: int
    timings: Timings | None = None


def answered(envelope: Envelope, answer: Answer, progress: Progress) -> Result:
    """An HTTP answer came, good or bad; bytes that are not UTF-8 become U+FFFD."""
    return Result(
        id=envelope.request.id,
        status_code=answer.status,
        payload=answer.body.decode(errors="replace"),
        request_token=envelope.request_token,
        metadata=envelope.request.metadata,
        attempts=progress.attempts,
        timings=progress.timings,
        dropped_reason=answer.dropped_reason,
    )


def unanswered(
    envelope: Envelope,
    code: ErrorCode,
    message: str,
    progress: Progress | None = None,
    *,
    dropped_reason: str = "",
) -> Result:
    """No HTTP answer came; `message` says why in words."""
    progress = progress or Progress(attempts=envelope.retry_count)
    return Result(
        id=envelope.request.id,
        payload=DROPPED_PAYLOAD if code is ErrorCode.GATE_DROPPED else error_payload(message),
        error_code=code,
        error_message=message,
        request_token=envelope.request_token,
        metadata=envelope.request.metadata,
        attempts=progress.attempts,
        timings=progress.timings,
        dropped_reason=dropped_reason,
    )


def invalid(error: InvalidMessage) -> Result:
    """The message could not be read, but its sender is known."""
    return Result(
        id=error.id,
        payload=error_payload(str(error)),
        error_code=ErrorCode.INVALID_REQUEST,
        error_message=str(error),
        request_token=error.request_token,
        metadata=error.metadata,
    )
