"""The shape of a message: from bytes to typed parts, in one pass.

A message is an envelope (`internal`, `request_kind`, `data`) or the bare object under `data`.
Half a surrogate pair in a string, which JSON allows and the decoder refuses, reads as U+FFFD; the
payload keeps its bytes even then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from async_processor.wire import scan

NULL: Final = b"null"


class Internal(msgspec.Struct):
    """`internal` as it travels; null means absent, here and below."""

    retry_count: int | None = None
    queue_id: str | None = None
    request_token: str | None = None
    request_queue_name: str | None = None
    result_queue_name: str | None = None
    transport_correlation_id: str | None = None
    enqueue_seq: int | None = None
    payload_ref: str | None = None
    dispatched: bool | None = None
    last_error: str | None = None
    labels: dict[str, str] | None = None


class Data(msgspec.Struct):
    """`data` as it travels, of all three kinds."""

    id: str | None = None
    created: int | float | str | None = None
    deadline: int | float | str | None = None
    payload: msgspec.Raw = msgspec.Raw(NULL)
    model: str | None = None
    metadata: dict[str, str] | None = None
    headers: dict[str, str] | None = None
    endpoint: str | None = None
    request_queue_name: str | None = None
    result_queue_name: str | None = None
    pubsub_id: str | None = None


class _Message(msgspec.Struct):
    """A whole message. A bare one has its `id` here, and rarely anything of the rest."""

    internal: Internal | None = None
    request_kind: str | None = None
    data: Data | None = None
    id: msgspec.Raw = msgspec.Raw(NULL)


class Parts(msgspec.Struct, kw_only=True):
    """A message taken apart; a bare one has its data only."""

    data: Data
    internal: Internal = msgspec.field(default_factory=Internal)
    request_kind: str = ""
    bare: bool = False


_message = msgspec.json.Decoder(_Message)
_data = msgspec.json.Decoder(Data)
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def parse(body: bytes) -> Parts:
    """Take a message apart.

    Raises:
        UnicodeDecodeError: it is not UTF-8.
        msgspec.ValidationError: a field has a wrong type.
        msgspec.MsgspecError: it is not JSON.
        RecursionError: it is nested too deeply.
    """
    if not body.isascii():
        body.decode()
    try:
        return _parse(body)
    except msgspec.ValidationError:
        raise
    except msgspec.MsgspecError:
        readable = scan.without_halves(body)
        if readable == body:
            raise
    parts = _parse(readable)
    outer = members(body)
    if outer.keys() != split(readable).keys():
        raise msgspec.DecodeError("half a surrogate pair among too many strings and brackets")
    data = outer if parts.bare else scan.members(outer["data"])
    parts.data.payload = msgspec.Raw(data.get("payload", NULL))
    return parts


def _parse(body: bytes) -> Parts:
    try:
        message = _message.decode(body)
    except msgspec.ValidationError:
        # A bare request may have fields of its own that are called like an envelope's.
        if is_envelope(members(body)):
            raise
        return Parts(data=_data.decode(body), bare=True)
    unmarked = message.internal is None and message.request_kind is None
    if message.data is None or (unmarked and bytes(message.id) != NULL):
        return Parts(data=_data.decode(body), bare=True)
    return Parts(
        data=message.data,
        internal=message.internal or Internal(),
        request_kind=message.request_kind or "",
    )


def is_envelope(fields: Mapping[str, bytes]) -> bool:
    """Whether an object with these members is the envelope, not the bare request."""
    named = {name for name, value in fields.items() if value != NULL}
    return "data" in named and (bool(named & {"internal", "request_kind"}) or "id" not in named)


def members(body: bytes) -> dict[str, bytes]:
    """Those of what a stranger sent, with bounded work: what is complete and not too far in."""
    return scan.members(body, tokens=scan.TOKENS)


def split(body: bytes) -> dict[str, msgspec.Raw]:
    """The members of an object that was read before, values as they stand."""
    try:
        return _object.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return {name: msgspec.Raw(value) for name, value in scan.members(body).items()}
