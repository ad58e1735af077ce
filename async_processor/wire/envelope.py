"""The only parser of messages: from the broker's bytes to an `Envelope`, and back.

Two shapes come in: the envelope that producers write (`internal`, `request_kind`, `data`) and the
bare object under `data`. What goes back to the broker is always an envelope. Nothing a producer
wrote is lost on the way: fields that this module does not know, and the payload's own bytes, are
carried as slices of the message and never re-encoded.

The reasons of `InvalidMessage` end up in logs and results: they show ids, routing, deadlines and
endpoints at most, never what stands in the payload, the headers or the metadata.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from async_processor.errors import AsyncProcessorError
from async_processor.wire import scan
from async_processor.wire.endpoint import endpoint_fault
from async_processor.wire.names import payload_key
from async_processor.wire.request import Request, RequestKind

SEQUENCE_SPAN: Final = 2097152
"""Equal deadlines are told apart by seq / 2^21, which a float64 score can still hold."""

_NULL: Final = b"null"


class InvalidMessage(AsyncProcessorError):
    """A message that cannot be processed; says which field, and what is allowed.

    `id`, `request_token`, `result_queue_name` and `metadata` are filled as far as they could be
    read, so that the sender still gets a result.
    """

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.field = field
        self.reason = reason
        self.id = ""
        self.request_token = ""
        self.result_queue_name = ""
        self.metadata: Mapping[str, str] = {}


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
    labels: Mapping[str, str] = {}

    @property
    def score(self) -> float:
        """The sorted-set score: the deadline, and within it the order of arrival."""
        return score(self.request.deadline, self.enqueue_seq)

    def rewritten(self, *, retry_count: int, request_queue_name: str) -> bytes:
        """The message to store again: other routing, everything else byte for byte as it came."""
        fields = {"data": msgspec.Raw(self.body)} if self.bare else _split(self.body)
        internal = fields.get("internal", msgspec.Raw(_NULL))
        routing = {} if bytes(internal) == _NULL else _split(bytes(internal))
        outer: dict[str, Any] = {"internal": None, "request_kind": None, **fields}
        outer["internal"] = {
            **routing,
            "retry_count": retry_count,
            "request_queue_name": request_queue_name,
        }
        outer["request_kind"] = self.kind
        return _encoder.encode(outer)


def score(deadline: float, seq: int) -> float:
    """Deadline (Unix seconds) + min(seq, 2097151) / 2097152; seq counts from 1, 0 means none."""
    return deadline + min(max(seq, 0), SEQUENCE_SPAN - 1) / SEQUENCE_SPAN


def read(body: bytes) -> Envelope:
    """Parse one message in either shape.

    Raises:
        InvalidMessage: it is no JSON object, or a field breaks a rule of the contract.
    """
    try:
        return _read(body)
    except InvalidMessage as error:
        _identify(error, body)
        raise


def examine(body: bytes) -> Envelope | InvalidMessage:
    """Like `read`, with the error as a value: what a transport hands on."""
    try:
        return read(body)
    except InvalidMessage as error:
        return error


class _Internal(msgspec.Struct):
    """`internal` as it travels; null means absent, here and below."""

    retry_count: int | None = None
    queue_id: str | None = None
    request_token: str | None = None
    request_queue_name: str | None = None
    result_queue_name: str | None = None
    transport_correlation_id: str | None = None
    enqueue_seq: int | None = None
    payload_ref: str | None = None
    labels: dict[str, str] | None = None


class _Data(msgspec.Struct):
    """`data` as it travels, of all three kinds."""

    id: str | None = None
    created: int | float | str | None = None
    deadline: int | float | str | None = None
    payload: msgspec.Raw = msgspec.Raw(_NULL)
    model: str | None = None
    metadata: dict[str, str] | None = None
    headers: dict[str, str] | None = None
    endpoint: str | None = None
    request_queue_name: str | None = None
    result_queue_name: str | None = None
    pubsub_id: str | None = None


class _Message(msgspec.Struct):
    """A whole message. A bare one has its `id` here, and rarely anything of the rest."""

    internal: _Internal | None = None
    request_kind: str | None = None
    data: _Data | None = None
    id: msgspec.Raw = msgspec.Raw(_NULL)


_message = msgspec.json.Decoder(_Message)
_data = msgspec.json.Decoder(_Data)
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_number = msgspec.json.Decoder(int | float)
_strings = msgspec.json.Decoder(dict[str, str])
_encoder = msgspec.json.Encoder()

_NO_ROUTING: Final = _Internal()


def _read(body: bytes) -> Envelope:
    try:
        if not body.isascii():
            body.decode()
        message, data = _parse(body)
        return _envelope(body, message, data)
    except UnicodeDecodeError as error:
        raise InvalidMessage("", f"the message is not UTF-8 (byte {error.start})") from None
    except RecursionError:
        raise InvalidMessage("", "the message is nested too deeply") from None
    except msgspec.ValidationError as error:
        raise _mistyped(error) from None
    except msgspec.MsgspecError as error:
        raise InvalidMessage("", f"the message is not JSON: {error}") from None


def _parse(body: bytes) -> tuple[_Message | None, _Data]:
    """The message, None for a bare one, and its data."""
    try:
        return _parse_strictly(body)
    except msgspec.ValidationError:
        raise
    except msgspec.MsgspecError:
        readable = scan.without_halves(body)
        if readable == body:
            raise
        message, data = _parse_strictly(readable)
        _take_payload(data, body if message is None else scan.members(body)["data"])
        return message, data


def _parse_strictly(body: bytes) -> tuple[_Message | None, _Data]:
    try:
        message = _message.decode(body)
    except msgspec.ValidationError:
        # A bare request may have fields of its own that are called like an envelope's.
        if _is_envelope(scan.members(body)):
            raise
        return None, _data.decode(body)
    data = message.data
    if data is None or (
        message.internal is None and message.request_kind is None and message.id != _NULL
    ):
        return None, _data.decode(body)
    return message, data


def _is_envelope(fields: Mapping[str, bytes]) -> bool:
    named = {name for name, value in fields.items() if value != _NULL}
    return "data" in named and (bool(named & {"internal", "request_kind"}) or "id" not in named)


def _take_payload(data: _Data, original: bytes) -> None:
    """The payload's own bytes, where the message had to be changed to be readable."""
    data.payload = msgspec.Raw(scan.members(original).get("payload", _NULL))


def _envelope(body: bytes, message: _Message | None, data: _Data) -> Envelope:
    internal = (message and message.internal) or _NO_ROUTING
    request_id = _read_id(data)
    token = internal.request_token or ""
    stored = _read_payload_ref(internal.payload_ref or "", request_id, token)
    return Envelope(
        request=_read_request(request_id, data, stored=bool(stored)),
        body=body,
        bare=message is None,
        kind=_read_kind(message.request_kind if message else None),
        retry_count=max(0, internal.retry_count or 0),
        queue_id=internal.queue_id or "",
        request_token=token,
        request_queue_name=internal.request_queue_name or data.request_queue_name or "",
        result_queue_name=internal.result_queue_name or data.result_queue_name or "",
        correlation_id=internal.transport_correlation_id or data.pubsub_id or "",
        enqueue_seq=internal.enqueue_seq or 0,
        payload_ref=stored,
        labels=internal.labels or {},
    )


def _read_request(request_id: str, data: _Data, *, stored: bool) -> Request:
    return Request(
        id=request_id,
        deadline=_read_deadline(data.deadline),
        payload=_read_payload(bytes(data.payload), stored=stored),
        created=_unix_seconds("created", data.created) if data.created else None,
        model=data.model or "",
        metadata=data.metadata or {},
        headers=data.headers or {},
        endpoint=_read_endpoint(data.endpoint) if data.endpoint else "",
    )


def _read_kind(text: str | None) -> RequestKind:
    if not text:
        return RequestKind.PLAIN
    kind = _KINDS.get(text)
    if kind is None:
        raise InvalidMessage("request_kind", f"{_shown(text)} is none of {', '.join(_KINDS)}")
    return kind


_KINDS: Final = {kind.value: kind for kind in RequestKind}


def _read_id(data: _Data) -> str:
    if data.id is None:
        raise InvalidMessage("id", "is missing")
    if not data.id:
        raise InvalidMessage("id", "must not be empty")
    return data.id


def _read_deadline(number: float | str | None) -> float:
    if number is None:
        raise InvalidMessage("deadline", "is missing")
    deadline = _unix_seconds("deadline", number)
    if not deadline > 0:
        raise InvalidMessage("deadline", f"{deadline:g} is not a Unix time above 0")
    return deadline


def _unix_seconds(field: str, number: float | str) -> float:
    try:
        seconds = float(_number.decode(number) if isinstance(number, str) else number)
    except (msgspec.MsgspecError, OverflowError):
        raise InvalidMessage(field, f"{_shown(number)} is not a Unix time in seconds") from None
    if not math.isfinite(seconds):
        raise InvalidMessage(field, f"{_shown(number)} is not finite")
    return seconds


def _read_payload(payload: bytes, *, stored: bool) -> bytes | None:
    if payload.startswith(b"{"):
        return payload
    if payload != _NULL:
        raise InvalidMessage("payload", "must be a JSON object")
    if not stored:
        raise InvalidMessage("payload", "is missing; it must be a JSON object")
    return None


def _read_payload_ref(payload_ref: str, request_id: str, token: str) -> str:
    """A message may only name its own payload: another's would be sent, and then deleted."""
    if payload_ref and not (token and payload_ref == payload_key(request_id, token)):
        raise InvalidMessage(
            "internal.payload_ref",
            f"{_shown(payload_ref)} is not request-payload:<id>:<request_token>",
        )
    return payload_ref


def _read_endpoint(path: str) -> str:
    fault = endpoint_fault(path)
    if fault:
        raise InvalidMessage("endpoint", f"{_shown(path)} {fault}")
    return path


def _split(body: bytes) -> dict[str, msgspec.Raw]:
    """The members of an object that was read before, values as they stand."""
    try:
        return _object.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return {name: msgspec.Raw(value) for name, value in scan.members(body).items()}


def _mistyped(error: msgspec.ValidationError) -> InvalidMessage:
    """What the decoder says names the field and the types, never the value."""
    reason, _, path = str(error).partition(" - at `$")
    field = path.rstrip("`").partition("[")[0].removeprefix(".").removeprefix("data.")
    reason = reason.replace("`", "").replace(" | null", "")
    return InvalidMessage(field, reason[:1].lower() + reason[1:])


def _shown(value: object) -> str:
    """A value as an error may show it: short, and on one line."""
    text = str(value)
    return ascii(text if len(text) <= 60 else text[:57] + "...")


def _identify(error: InvalidMessage, body: bytes) -> None:
    """Fill what the sender needs to get a result, as far as it can be read."""
    fields = scan.members(body)
    enveloped = _is_envelope(fields)
    data = scan.members(fields["data"]) if enveloped else fields
    internal = scan.members(fields.get("internal", b"")) if enveloped else {}
    error.id = _text(data, "id")
    error.request_token = _text(internal, "request_token")
    error.result_queue_name = _text(internal, "result_queue_name") or _text(
        data, "result_queue_name"
    )
    error.metadata = _map(data, "metadata")


def _text(fields: Mapping[str, bytes], name: str) -> str:
    return scan.text_of(fields.get(name, b"")) or ""


def _map(fields: Mapping[str, bytes], name: str) -> Mapping[str, str]:
    try:
        return _strings.decode(scan.without_halves(fields.get(name, b"{}")))
    except (msgspec.MsgspecError, RecursionError):
        return {}
