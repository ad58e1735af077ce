"""What a caller asks for: the object under `data` of a message (contract, section 1)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec


class RequestKind(StrEnum):
    """The shape of `data`; `redis` and `pubsub` add their own routing fields."""

    PLAIN = "plain"
    REDIS = "redis"
    PUBSUB = "pubsub"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One inference call with a deadline.

    `deadline` and `created` are Unix times in seconds. `payload` holds the JSON object exactly as
    it came, byte for byte; it is None when the message names a stored body instead.
    """

    id: str
    deadline: float
    payload: bytes | None
    created: float | None = None
    model: str = ""
    metadata: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    endpoint: str = ""
