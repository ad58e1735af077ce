"""Outcomes as settle.lua takes them: one `Entry` for each."""

from __future__ import annotations

from typing import Final

import msgspec

from async_processor.redis_io.keys import lot_key
from async_processor.transport.base import Bury, Delivery, Outcome, Park, Post, Release, Retry
from async_processor.wire import dead_letter, result
from async_processor.wire.names import active_key, cancel_key

LARGE_BYTES: Final = 512 * 2**10
"""Up to this every Redis takes a call, for its limits of arguments and clients are 1 MiB at least
(proto-max-bulk-len, client-query-buffer-limit)."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One settlement; settle.lua explains the fields. `size` is in bytes.

    `target` is the key of the result's list or of the lot.
    """

    token: str
    what: str
    value: bytes = b""
    number: str = ""
    result: bytes = b""
    target: str = ""
    expires_ms: str = ""
    request_token: str = ""
    request_keys: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return len(self.value) + len(self.result)

    @property
    def large(self) -> bool:
        """Whether it is sent alone, and may be too large for the broker."""
        return self.size > LARGE_BYTES


def entry(delivery: Delivery, outcome: Outcome, now: float) -> Entry:
    """What is to be written for an outcome; `now` is the Unix time in seconds."""
    match outcome:
        case Post():
            return _ending(delivery, "post", outcome)
        case Bury(reason=reason, post=post):
            return _ending(delivery, "bury", post, _letter(delivery, reason, now))
        case Retry(body=body, due_at=due_at):
            return Entry(token=delivery.token, what="retry", value=body, number=repr(due_at))
        case Release(score=score, body=new_body):
            number = "" if score is None else repr(score)
            return Entry(token=delivery.token, what="release", value=new_body or b"", number=number)
        case Park(lot=lot):
            key = lot_key(delivery.queue_name, lot)
            return Entry(token=delivery.token, what="park", value=lot.encode(), target=key)


def without_place(refused: Entry, delivery: Delivery, fault: str, now: float) -> Entry | None:
    """The next best for an entry that Redis refused: its result lies in a dead letter.

    None when there is nothing better. `fault` is what Redis said, `now` the Unix time in seconds.
    """
    if not refused.result:
        return None
    reason = f"no list takes the result ({refused.target}: {fault})"
    letter = _letter(delivery, reason, now, refused)
    return _ending(delivery, "bury", None, letter)


def too_large(refused: Entry) -> Entry | None:
    """The next best for an entry whose result Redis cannot take: one that says so.

    None when it is not the result that makes it large.
    """
    if len(refused.result) <= LARGE_BYTES:
        return None
    message = f"the result of {len(refused.result)} bytes is too large for the broker"
    reduced = msgspec.structs.replace(
        result.decode(refused.result),
        status_code=None,
        payload=result.error_payload(message),
        error_code=result.ErrorCode.INFERENCE_ERROR,
        error_message=message,
    )
    return msgspec.structs.replace(refused, result=result.encode(reduced))


def _ending(delivery: Delivery, what: str, post: Post | None, letter: bytes = b"") -> Entry:
    return Entry(
        token=delivery.token,
        what=what,
        value=letter,
        result=b"" if post is None else result.encode(post.result),
        target="" if post is None else post.result_queue,
        expires_ms=_milliseconds(post),
        request_token=delivery.request_token,
        request_keys=_request_keys(delivery, what),
    )


def _milliseconds(post: Post | None) -> str:
    if post is None or post.expires_after is None:
        return ""
    return str(max(1, round(post.expires_after * 1000)))


def _request_keys(delivery: Delivery, what: str) -> tuple[str, ...]:
    """The keys that go with the request; a dead letter's payload stays, to be requeued with it."""
    if not delivery.request_token:
        return ()
    keys = (active_key(delivery.request_id), cancel_key(delivery.request_id))
    return (*keys, delivery.payload_ref) if delivery.payload_ref and what != "bury" else keys


def _letter(delivery: Delivery, reason: str, now: float, refused: Entry | None = None) -> bytes:
    """A dead letter; with an entry that Redis `refused` it holds that entry's result."""
    return dead_letter.encode(
        delivery.body,
        reason=reason,
        queue_name=delivery.queue_name,
        buried_at=now,
        deliveries=delivery.deliveries,
        result=None if refused is None else refused.result,
        result_queue_name=None if refused is None else refused.target,
        result_expires_ms=int(refused.expires_ms) if refused and refused.expires_ms else None,
    )
