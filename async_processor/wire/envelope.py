"""From the broker's bytes to an `Envelope`, and back: the only reader of messages.

What goes back to the broker is always an envelope, whatever came. Nothing a producer wrote is
lost on the way: fields that are not known here, and the payload's own bytes, are carried as
slices of the message and never re-encoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from async_processor.wire import scan
from async_processor.wire.invalid import InvalidMessage
from async_processor.wire.request import Request, RequestKind
from async_processor.wire.rules import check_payload_ref, read_id, read_kind, read_request
from async_processor.wire.shapes import NULL, Parts, is_envelope, members, parse, split

__all__ = ["SEQUENCE_SPAN", "Envelope", "InvalidMessage", "examine", "read", "score"]

SEQUENCE_SPAN: Final = 2097152
"""Equal deadlines are told apart by seq / 2^21, which a float64 score can still hold."""

_encoder = msgspec.json.Encoder()
_strings = msgspec.json.Decoder(dict[str, str])


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """A request and its routing: what travels through the broker.

    `body` is the message as it was read, `bare` whether it is the bare request; `rewritten` makes
    the next one from it.
    """

    request: Request
    body: bytes
    bare: bool = False
    kind: RequestKind = RequestKind.PLAIN
    retry_count: int = 0
    queue_id: str = ""
    request_token: str = ""
    request_queue_name: str = ""
    result_queue_name: str = ""
    correlation_id: str = ""
    enqueue_seq: int = 0
    payload_ref: str = ""
    dispatched: bool = False
    """Whether it was sent before, in an attempt that was cut off."""
    last_error: str = ""
    """How the last attempt failed, in short words; empty when none has."""
    labels: Mapping[str, str] = {}

    @property
    def score(self) -> float:
        """The sorted-set score: the deadline, and within it the order of arrival."""
        return score(self.request.deadline, self.enqueue_seq)

    def rewritten(
        self,
        *,
        retry_count: int,
        request_queue_name: str,
        dispatched: bool | None = None,
        last_error: str | None = None,
    ) -> bytes:
        """The message to store again: other routing, everything else byte for byte as it came.

        `dispatched` and `last_error` stay what they were unless they are given.
        """
        fields = {"data": msgspec.Raw(self.body)} if self.bare else split(self.body)
        internal = bytes(fields.get("internal", NULL))
        routing: dict[str, Any] = {} if internal == NULL else dict(split(internal))
        routing["retry_count"] = retry_count
        routing["request_queue_name"] = request_queue_name
        if dispatched is not None:
            routing["dispatched"] = dispatched
        if last_error is not None:
            routing["last_error"] = last_error
        outer: dict[str, Any] = {"internal": None, "request_kind": None, **fields}
        return _encoder.encode(outer | {"internal": routing, "request_kind": self.kind})


def score(deadline: float, seq: int) -> float:
    """Deadline (Unix seconds) + min(seq, 2097151) / 2097152; seq counts from 1, 0 means none."""
    return deadline + min(max(seq, 0), SEQUENCE_SPAN - 1) / SEQUENCE_SPAN


def read(body: bytes) -> Envelope:
    """Parse one message in either shape.

    Raises:
        InvalidMessage: it is no JSON object, or a field breaks a rule of the contract.
    """
    try:
        return _envelope(body, _parts(body))
    except InvalidMessage as error:
        _identify(error, body)
        raise


def examine(body: bytes) -> Envelope | InvalidMessage:
    """Like `read`, with the error as a value: what a transport hands on."""
    try:
        return read(body)
    except InvalidMessage as error:
        return error.with_traceback(None)  # whose frames would keep copies of the body alive


def _parts(body: bytes) -> Parts:
    try:
        return parse(body)
    except UnicodeDecodeError as error:
        raise InvalidMessage("", f"the message is not UTF-8 (byte {error.start})") from None
    except RecursionError:
        raise InvalidMessage("", "the message is nested too deeply") from None
    except msgspec.ValidationError as error:
        raise _mistyped(error) from None
    except msgspec.MsgspecError as error:
        raise InvalidMessage("", f"the message is not JSON: {error}") from None


def _mistyped(error: msgspec.ValidationError) -> InvalidMessage:
    """What the decoder says names the field and the types, never the value."""
    reason, _, path = str(error).partition(" - at `$")
    field = path.rstrip("`").partition("[")[0].removeprefix(".").removeprefix("data.")
    reason = reason.replace("`", "").replace(" | null", "")
    return InvalidMessage(field, reason[:1].lower() + reason[1:])


def _envelope(body: bytes, parts: Parts) -> Envelope:
    internal, data = parts.internal, parts.data
    token = internal.request_token or ""
    payload_ref = internal.payload_ref or ""
    if payload_ref:
        check_payload_ref(payload_ref, read_id(data.id), token)
    return Envelope(
        request=read_request(data, stored=bool(payload_ref)),
        body=body,
        bare=parts.bare,
        kind=read_kind(parts.request_kind),
        retry_count=max(0, internal.retry_count or 0),
        queue_id=internal.queue_id or "",
        request_token=token,
        request_queue_name=internal.request_queue_name or data.request_queue_name or "",
        result_queue_name=internal.result_queue_name or data.result_queue_name or "",
        correlation_id=internal.transport_correlation_id or data.pubsub_id or "",
        enqueue_seq=internal.enqueue_seq or 0,
        payload_ref=payload_ref,
        dispatched=internal.dispatched or False,
        last_error=internal.last_error or "",
        labels=internal.labels or {},
    )


def _identify(error: InvalidMessage, body: bytes) -> None:
    """Fill what the sender needs to get a result, as far as it can be read."""
    outer = members(body)
    data, internal = outer, dict[str, bytes]()
    if is_envelope(outer):
        data, internal = members(outer["data"]), members(outer.get("internal", b""))
    error.id = _text(data, "id")
    error.request_token = _text(internal, "request_token")
    error.result_queue_name = _text(internal, "result_queue_name") or _text(
        data, "result_queue_name"
    )
    error.request_queue_name = _text(internal, "request_queue_name") or _text(
        data, "request_queue_name"
    )
    error.metadata = _map(data, "metadata")


def _text(fields: Mapping[str, bytes], name: str) -> str:
    return scan.text_of(fields.get(name, b"")) or ""


def _map(fields: Mapping[str, bytes], name: str) -> Mapping[str, str]:
    try:
        return _strings.decode(scan.without_halves(fields.get(name, b"{}")))
    except (msgspec.MsgspecError, RecursionError):
        return {}
