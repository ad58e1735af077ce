"""What a request's fields may hold: the rules of the contract's table, field by field."""

from __future__ import annotations

import math
from typing import Final

import msgspec

from async_processor.wire.endpoint import endpoint_fault
from async_processor.wire.invalid import InvalidMessage, shown
from async_processor.wire.names import payload_key
from async_processor.wire.request import Request, RequestKind
from async_processor.wire.shapes import NULL, Data

_number = msgspec.json.Decoder(int | float)

_KINDS: Final = {kind.value: kind for kind in RequestKind}


def read_request(data: Data, *, stored: bool) -> Request:
    """The request; `stored` says that its payload may lie elsewhere. Raises InvalidMessage."""
    return Request(
        id=read_id(data.id),
        deadline=_read_deadline(data.deadline),
        payload=_read_payload(bytes(data.payload), stored=stored),
        created=_unix_seconds("created", data.created) if data.created else None,
        model=data.model or "",
        metadata=data.metadata or {},
        headers=data.headers or {},
        endpoint=_read_endpoint(data.endpoint) if data.endpoint else "",
    )


def read_id(request_id: str | None) -> str:
    """What maps the result to the request. Raises InvalidMessage."""
    if request_id is None:
        raise InvalidMessage("id", "is missing")
    if not request_id:
        raise InvalidMessage("id", "must not be empty")
    return request_id


def read_kind(text: str) -> RequestKind:
    """`request_kind`, which is plain where nothing stands. Raises InvalidMessage."""
    if not text:
        return RequestKind.PLAIN
    kind = _KINDS.get(text)
    if kind is None:
        raise InvalidMessage("request_kind", f"{shown(text)} is none of {', '.join(_KINDS)}")
    return kind


def check_payload_ref(payload_ref: str, request_id: str, token: str) -> None:
    """A message may only name its own payload: another's would be sent, and then deleted.

    Raises InvalidMessage.
    """
    if payload_ref and not (token and payload_ref == payload_key(request_id, token)):
        raise InvalidMessage(
            "internal.payload_ref",
            f"{shown(payload_ref)} is not request-payload:<id>:<request_token>",
        )


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
        raise InvalidMessage(field, f"{shown(number)} is not a Unix time in seconds") from None
    if not math.isfinite(seconds):
        raise InvalidMessage(field, f"{shown(number)} is not finite")
    return seconds


def _read_payload(payload: bytes, *, stored: bool) -> bytes | None:
    if payload.startswith(b"{"):
        return payload
    if payload != NULL:
        raise InvalidMessage("payload", "must be a JSON object")
    if not stored:
        raise InvalidMessage("payload", "is missing; it must be a JSON object")
    return None


def _read_endpoint(path: str) -> str:
    fault = endpoint_fault(path)
    if fault:
        raise InvalidMessage("endpoint", f"{shown(path)} {fault}")
    return path
