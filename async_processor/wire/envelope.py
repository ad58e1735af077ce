"""The only parser of messages: from the broker's bytes to an `Envelope`, and back.

Two shapes come in: the envelope that producers write (`internal`, `request_kind`, `data`) and the
bare object under `data`. What goes back to the broker is always an envelope. Nothing a producer
wrote is lost on the way: fields that this module does not know, and the payload's own bytes, are
carried as slices of the message and never re-encoded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from async_processor.errors import AsyncProcessorError
from async_processor.wire.request import Request, RequestKind

SEQUENCE_SPAN: Final = 2097152
"""Equal deadlines are told apart by seq / 2^21, which a float64 score can still hold."""

_T = TypeVar("_T")
_Fields = dict[str, msgspec.Raw]

_object = msgspec.json.Decoder(_Fields)
_string = msgspec.json.Decoder(str)
_strings = msgspec.json.Decoder(dict[str, str])
_integer = msgspec.json.Decoder(int)
_number = msgspec.json.Decoder(int | float | str)
_encoder = msgspec.json.Encoder()

_NULL: Final = b"null"


class InvalidMessage(AsyncProcessorError):
    """A message that cannot be processed; says which field, what stands there, what is allowed.

    `id`, `request_token` and `result_queue_name` are filled as far as they could be read, so that
    the sender still gets a result.
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

    `body` is the message as it was read; `rewritten` makes the next one from it.
    """

    request: Request
    body: bytes
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
        fields = _object.decode(self.body)
        bare = not _is_envelope(fields)
        internal: dict[str, Any] = {} if bare else dict(_optional(fields, "internal", _object, {}))
        internal["retry_count"] = retry_count
        internal["request_queue_name"] = request_queue_name
        outer: dict[str, Any] = {} if bare else dict(fields)
        outer["internal"] = internal
        outer.setdefault("request_kind", self.kind)
        outer["data"] = msgspec.Raw(self.body) if bare else fields["data"]
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
        body.decode()
        fields = _object.decode(body)
    except UnicodeDecodeError as error:
        raise InvalidMessage("", f"the message is not UTF-8 (byte {error.start})") from None
    except RecursionError:
        raise InvalidMessage("", "the message is nested too deeply") from None
    except msgspec.MsgspecError as error:
        raise InvalidMessage("", f"the message is not a JSON object: {error}") from None
    return _read_envelope(fields, body) if _is_envelope(fields) else _read_bare(fields, body)


def _is_envelope(fields: _Fields) -> bool:
    return "data" in fields and ("internal" in fields or "request_kind" in fields)


def _read_bare(fields: _Fields, body: bytes) -> Envelope:
    try:
        return Envelope(request=_read_request(fields, stored=False), body=body)
    except InvalidMessage as error:
        _identify(error, {}, fields)
        raise


def _read_envelope(outer: _Fields, body: bytes) -> Envelope:
    internal: _Fields = {}
    data: _Fields = {}
    try:
        internal = _optional(outer, "internal", _object, {})
        data = _field(outer, "data", _object)
        kind = _read_kind(outer)
        payload_ref = _optional(internal, "payload_ref", _string, "", "internal.")
        return Envelope(
            request=_read_request(data, stored=bool(payload_ref)),
            body=body,
            kind=kind,
            retry_count=max(0, _optional(internal, "retry_count", _integer, 0, "internal.")),
            queue_id=_optional(internal, "queue_id", _string, "", "internal."),
            request_token=_optional(internal, "request_token", _string, "", "internal."),
            request_queue_name=_routed(internal, data, kind, "request_queue_name"),
            result_queue_name=_routed(internal, data, kind, "result_queue_name"),
            correlation_id=_optional(internal, "transport_correlation_id", _string, "", "internal.")
            or _optional(data, "pubsub_id", _string, "", "data."),
            enqueue_seq=_optional(internal, "enqueue_seq", _integer, 0, "internal."),
            payload_ref=payload_ref,
            labels=_optional(internal, "labels", _strings, {}, "internal."),
        )
    except InvalidMessage as error:
        _identify(error, internal, data)
        raise


def _read_kind(outer: _Fields) -> RequestKind:
    text = _optional(outer, "request_kind", _string, RequestKind.PLAIN.value)
    try:
        return RequestKind(text)
    except ValueError:
        allowed = ", ".join(RequestKind)
        raise InvalidMessage("request_kind", f"{_shown(text)} is none of {allowed}") from None


def _routed(internal: _Fields, data: _Fields, kind: RequestKind, name: str) -> str:
    """Routing as the producer settled it under `internal`, else as the caller wrote it."""
    settled = _optional(internal, name, _string, "", "internal.")
    if settled or kind is RequestKind.PLAIN:
        return settled
    return _optional(data, name, _string, "", "data.")


def _read_request(data: _Fields, *, stored: bool) -> Request:
    return Request(
        id=_read_id(data),
        deadline=_read_deadline(data),
        payload=_read_payload(data, stored=stored),
        created=_read_created(data),
        model=_optional(data, "model", _string, ""),
        metadata=_optional(data, "metadata", _strings, {}),
        headers=_optional(data, "headers", _strings, {}),
        endpoint=_read_endpoint(data),
    )


def _read_id(data: _Fields) -> str:
    text = _field(data, "id", _string)
    if not text:
        raise InvalidMessage("id", "must not be empty")
    return text


def _read_deadline(data: _Fields) -> float:
    deadline = _unix_seconds("deadline", _field(data, "deadline", _number))
    if not deadline > 0:
        raise InvalidMessage("deadline", f"{deadline:g} is not a Unix time above 0")
    return deadline


def _read_created(data: _Fields) -> float | None:
    created = _optional(data, "created", _number, 0)
    return _unix_seconds("created", created) if created else None


def _unix_seconds(field: str, number: float | str) -> float:
    try:
        seconds = float(number)
    except (ValueError, OverflowError):
        raise InvalidMessage(field, f"{_shown(number)} is not a Unix time in seconds") from None
    if not math.isfinite(seconds):
        raise InvalidMessage(field, f"{_shown(number)} is not finite")
    return seconds


def _read_payload(data: _Fields, *, stored: bool) -> bytes | None:
    raw = data.get("payload")
    payload = _NULL if raw is None else bytes(raw)
    if payload == _NULL:
        if stored:
            return None
        raise InvalidMessage("payload", "is missing; it must be a JSON object")
    if not payload.startswith(b"{"):
        raise InvalidMessage("payload", f"{_shown(payload)} is not a JSON object")
    return payload


def _read_endpoint(data: _Fields) -> str:
    """A path and nothing else, so that a message cannot reach another host."""
    path = _optional(data, "endpoint", _string, "")
    if not path:
        return ""
    reason = _endpoint_fault(path)
    if reason:
        raise InvalidMessage("endpoint", f"{_shown(path)} {reason}")
    return path


def _endpoint_fault(path: str) -> str:
    if not path.startswith("/"):
        return "must be a path that begins with /"
    if "//" in path or "\\" in path:
        return "must not contain // or a backslash"
    if any(character <= " " or character == "\x7f" for character in path):
        return "must not contain spaces or control characters"
    steps = path.split("?", 1)[0].lower().replace("%2e", ".").replace("%2f", "/").split("/")
    if ".." in steps:
        return "must not contain .."
    return ""


def _field(fields: _Fields, name: str, decoder: msgspec.json.Decoder[_T], prefix: str = "") -> _T:
    if name not in fields:
        raise InvalidMessage(prefix + name, "is missing")
    return _decoded(fields[name], prefix + name, decoder)


def _optional(
    fields: _Fields, name: str, decoder: msgspec.json.Decoder[_T], default: _T, prefix: str = ""
) -> _T:
    """The field's value; absent and null both mean the default."""
    raw = fields.get(name)
    if raw is None or bytes(raw) == _NULL:
        return default
    return _decoded(raw, prefix + name, decoder)


def _decoded(raw: msgspec.Raw, field: str, decoder: msgspec.json.Decoder[_T]) -> _T:
    try:
        return decoder.decode(raw)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidMessage(field, f"{_shown(bytes(raw))} is not allowed: {error}") from None


def _shown(value: object) -> str:
    """A value as an error may show it: short, and on one line."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _identify(error: InvalidMessage, internal: _Fields, data: _Fields) -> None:
    """Fill what the sender needs to get a result, as far as it can be read."""
    error.id = _attempt(data, "id", _string, "")
    error.request_token = _attempt(internal, "request_token", _string, "")
    error.result_queue_name = _attempt(internal, "result_queue_name", _string, "") or _attempt(
        data, "result_queue_name", _string, ""
    )
    error.metadata = _attempt(data, "metadata", _strings, {})


def _attempt(
    fields: _Fields, name: str, decoder: msgspec.json.Decoder[_T], default: _T
) -> _T:
    reader: Callable[[], _T] = lambda: _optional(fields, name, decoder, default)  # noqa: E731
    try:
        return reader()
    except InvalidMessage:
        return default
