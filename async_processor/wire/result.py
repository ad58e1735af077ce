"""What a caller gets: one JSON object on the result queue (contract, section 2)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec


class ErrorCode(StrEnum):
    """Why a request ended without an HTTP answer."""

    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    CANCELLED = "CANCELLED"
    GATE_DROPPED = "GATE_DROPPED"
    GATE_ERROR = "GATE_ERROR"
    INFERENCE_ERROR = "INFERENCE_ERROR"
    INVALID_REQUEST = "INVALID_REQUEST"
    PAYLOAD_UNAVAILABLE = "PAYLOAD_UNAVAILABLE"
    MAX_DELIVERIES = "MAX_DELIVERIES"

    @classmethod
    def _missing_(cls, value: object) -> ErrorCode | None:
        """Another version may know more reasons: its results must stay readable."""
        if not isinstance(value, str):
            return None
        unknown = str.__new__(cls, value)
        unknown._name_ = unknown._value_ = value
        return unknown


class Timings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Milliseconds from claim to dispatch and, of the last attempt, from dispatch to answer."""

    queued_ms: int | None = None
    inference_ms: int | None = None


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The one answer to a request.

    With `status_code` an HTTP answer came and `payload` is its body; without, `error_code` and
    `error_message` say why none came, and `payload` is a JSON object that repeats the message.
    """

    id: str
    payload: str
    status_code: int | None = None
    error_code: ErrorCode | None = None
    error_message: str | None = None
    request_token: str = ""
    metadata: Mapping[str, str] = {}
    attempts: int = 0
    timings: Timings | None = None
    dropped_reason: str = ""

    @property
    def succeeded(self) -> bool:
        """Whether the inference server answered with a 2xx status."""
        return self.status_code is not None and 200 <= self.status_code < 300


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Result)


def encode(result: Result) -> bytes:
    """The result as it lies on the result queue."""
    return _encoder.encode(result)


def decode(body: bytes) -> Result:
    """Read a result; raises `msgspec.MsgspecError` (a `ValueError`) when it is none."""
    return _decoder.decode(body)


def error_payload(message: str) -> str:
    """The payload of a result without an HTTP answer."""
    return _encoder.encode({"error": message}).decode()
