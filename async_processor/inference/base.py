"""Who answers a request: one `Call` in, one `Reply` out, and no exception for a failed call."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol

import msgspec


class Call(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One call of the inference gateway; headers are final, `timeout` is in seconds.

    `payload` is the JSON object that the body was made of, mostly the body itself.
    """

    url: str
    headers: Mapping[str, str]
    body: bytes
    timeout: float
    payload: bytes = b"{}"


class Answer(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """An HTTP answer came.

    `retry_after` is the wait in seconds that the server asked for, None when it did not or wrote
    nonsense. `dropped_reason` is the router's `x-llm-d-request-dropped-reason`.
    """

    status: int
    body: bytes
    retry_after: float | None = None
    dropped_reason: str = ""


class Failure(StrEnum):
    """Why no answer came."""

    REFUSED = "connection refused"
    RESET = "connection lost"
    TIMEOUT = "timed out"
    DNS = "name not resolved"
    BROKEN_BODY = "broken answer"
    TOO_LARGE = "answer too large"
    TLS = "TLS handshake failed"
    UNSENDABLE = "request cannot be sent"


class NoAnswer(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """No usable HTTP answer came; `message` says why in words, without secrets."""

    failure: Failure
    message: str

    @property
    def transient(self) -> bool:
        """Whether another attempt may end differently."""
        return self.failure not in (Failure.TOO_LARGE, Failure.UNSENDABLE)


Reply = Answer | NoAnswer


class Engine(Protocol):
    """Sends calls. Cancelling `send` closes the call's connection at once."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def send(self, call: Call) -> Reply: ...
