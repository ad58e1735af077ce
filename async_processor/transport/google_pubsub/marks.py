"""What travels beside a message as attributes: marks on copies that we store, facts on results.

The marks are ours alone; all other attributes are the sender's, and part of its metadata.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import msgspec

from async_processor.wire import envelope
from async_processor.wire.envelope import Envelope, InvalidMessage
from async_processor.wire.result import Result

RESULT_ROUTE: Final = "result_route"
"""The attribute by which subscribers of the results find theirs; it comes with the request."""

LONGEST_VALUE: Final = 1024
"""Bytes of an attribute's value that Pub/Sub takes."""

_PREFIX: Final = "async_processor_"
_SUBSCRIPTION: Final = f"{_PREFIX}subscription"
_DUE: Final = f"{_PREFIX}due"
_DELIVERIES: Final = f"{_PREFIX}deliveries"


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """On a copy: whose it is, when it is due (Unix seconds), deliveries that were lost before."""

    subscription: str = ""
    due_at: float = 0.0
    deliveries: int = 0

    @property
    def is_copy(self) -> bool:
        return bool(self.subscription)


def read(attributes: Mapping[str, str]) -> Marks:
    """The marks on a message; what is no number counts as 0."""
    return Marks(
        subscription=attributes.get(_SUBSCRIPTION, ""),
        due_at=_number(attributes.get(_DUE, "")),
        deliveries=max(0, int(_number(attributes.get(_DELIVERIES, "")))),
    )


def marked(attributes: Mapping[str, str], marks: Marks) -> dict[str, str]:
    """The sender's attributes with these marks."""
    return {
        **senders(attributes),
        _SUBSCRIPTION: marks.subscription,
        _DUE: repr(marks.due_at),
        _DELIVERIES: str(marks.deliveries),
    }


def senders(attributes: Mapping[str, str]) -> dict[str, str]:
    """The attributes without our marks."""
    return {key: value for key, value in attributes.items() if not key.startswith(_PREFIX)}


def examine(data: bytes, attributes: Mapping[str, str]) -> Envelope | InvalidMessage:
    """Read a message, the sender's attributes merged into its metadata, which wins."""
    message = envelope.examine(data)
    own = senders(attributes)
    if isinstance(message, InvalidMessage):
        message.metadata = {**own, **message.metadata}
        return message
    if not own:
        return message
    request = message.request
    merged = msgspec.structs.replace(request, metadata={**own, **request.metadata})
    return msgspec.structs.replace(message, request=merged)


def of_result(result: Result) -> dict[str, str]:
    """What subscribers of results may filter on: `id`, `status` and, if given, `result_route`.

    `status` is the HTTP status, or the error code where no answer came.
    """
    status = str(result.status_code) if result.status_code is not None else result.error_code
    attributes = {
        "id": result.id,
        "status": status or "",
        RESULT_ROUTE: result.metadata.get(RESULT_ROUTE, ""),
    }
    return {key: cut(value) for key, value in attributes.items() if value}


def cut(value: str) -> str:
    """As much of a text as an attribute holds."""
    return value.encode()[:LONGEST_VALUE].decode(errors="ignore")


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return 0.0
    return number if math.isfinite(number) else 0.0
