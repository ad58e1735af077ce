"""Builds the message of a submission: the envelope of the contract, section 1.

The sequence number is given by the broker in the moment of submitting, so a message is kept in
two pieces around it. Every message is read back once with the processor's own parser: what that
would refuse is refused here, before anything is written.
"""

from __future__ import annotations

import secrets
from typing import Any, Final

import msgspec

from async_processor.producer.deadline import unix_deadline
from async_processor.producer.errors import InvalidSubmission
from async_processor.producer.submission import Handle, Payload, Submission
from async_processor.redis_io.producer_store import Draft
from async_processor.wire import envelope, names
from async_processor.wire.request import RequestKind

_encoder: Final = msgspec.json.Encoder()
_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """Where requests go and their results come: names of the broker's queues.

    With an empty `result_queue` the processor's configuration decides. With `store_payload` the
    payload does not travel in the message.
    """

    queue_name: str
    result_queue: str = ""
    store_payload: bool = False


def draft(
    submission: Submission, route: Route, now: float, *, mailbox: bool = False
) -> tuple[Handle, Draft]:
    """Build and check the message of one submission; `now` is the broker's Unix time in seconds.

    With `mailbox` its result comes on a list of its own.

    Raises:
        DeadlinePassed: its deadline has passed.
        InvalidSubmission: the processor would refuse it.
    """
    payload = _payload_bytes(submission.payload)
    handle = _handle(submission, route, now, mailbox=mailbox)
    stored = payload if route.store_payload else None
    made = Draft(
        id=handle.id,
        request_token=handle.request_token,
        deadline=handle.deadline,
        head=_head(handle, stored=stored is not None),
        tail=_tail(submission, handle, b"null" if stored is not None else payload, now),
        payload=stored,
    )
    _readable(made.body(1))
    return handle, made


def bare(submission: Submission, route: Route, now: float) -> tuple[Handle, bytes]:
    """Like `draft`, for a broker whose messages are the bare requests."""
    payload = _payload_bytes(submission.payload)
    made = _handle(submission, route, now, mailbox=False)
    handle = msgspec.structs.replace(made, request_token="")
    fields = _data(submission, handle, payload, now)
    if route.result_queue:
        fields["result_queue_name"] = route.result_queue
    body = _encoded(fields)
    _readable(body)
    return handle, body


def _handle(submission: Submission, route: Route, now: float, *, mailbox: bool) -> Handle:
    request_id = submission.id or f"r-{secrets.token_hex(16)}"
    token = secrets.token_hex(16)
    return Handle(
        id=request_id,
        request_token=token,
        queue_name=route.queue_name,
        deadline=unix_deadline(submission.deadline, now),
        result_queue=names.mailbox(request_id, token) if mailbox else route.result_queue,
    )


def _head(handle: Handle, *, stored: bool) -> bytes:
    internal = {
        "request_token": handle.request_token,
        "request_queue_name": handle.queue_name,
        "result_queue_name": handle.result_queue,
    }
    if stored:
        internal["payload_ref"] = names.payload_key(handle.id, handle.request_token)
    filled = {name: value for name, value in internal.items() if value}
    return b'{"internal":' + _encoded(filled)[:-1] + b',"enqueue_seq":'


def _tail(submission: Submission, handle: Handle, payload: bytes, now: float) -> bytes:
    kind = RequestKind.PLAIN.encode()
    data = _encoded(_data(submission, handle, payload, now))
    return b'},"request_kind":"' + kind + b'","data":' + data + b"}"


def _data(submission: Submission, handle: Handle, payload: bytes, now: float) -> dict[str, Any]:
    data: dict[str, Any] = {
        "id": handle.id,
        "created": int(now if submission.created is None else submission.created),
        "deadline": handle.deadline,
        "payload": msgspec.Raw(payload),
        "model": submission.model,
        "metadata": submission.metadata,
        "headers": submission.headers,
        "endpoint": submission.endpoint,
    }
    return {name: value for name, value in data.items() if value}


def _encoded(fields: dict[str, Any]) -> bytes:
    try:
        return _encoder.encode(fields)
    except (TypeError, ValueError, UnicodeEncodeError) as error:
        raise InvalidSubmission("", f"cannot be written as JSON: {error}") from None


def _payload_bytes(payload: Payload) -> bytes:
    try:
        raw = _raw(payload)
        raw.decode()
        _object.decode(raw)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidSubmission("payload", f"is not a JSON object: {error}") from None
    return raw


def _raw(payload: Payload) -> bytes:
    match payload:
        case bytes():
            return payload.strip()
        case str():
            return payload.strip().encode()
        case _:
            return _encoder.encode(payload)


def _readable(body: bytes) -> None:
    try:
        envelope.read(body)
    except envelope.InvalidMessage as error:
        raise InvalidSubmission(error.field, error.reason) from None
