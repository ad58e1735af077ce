"""What a request costs its tenant: one, or the tokens it may take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from async_processor.wire.request import Request

Cost = Callable[[Request], float]

BYTES_PER_TOKEN: Final = 4
"""A rule of thumb for English text; shares need the ratio between tenants, not the exact count."""

UNLIMITED_TOKENS: Final = 256
"""What a request counts for its answer when it sets no limit."""


class _Payload(msgspec.Struct, frozen=True):
    max_tokens: float | None = None
    max_completion_tokens: float | None = None
    n: float | None = None


_decoder = msgspec.json.Decoder(_Payload)


def one(_request: Request) -> float:
    """Every request costs the same."""
    return 1.0


def tokens(request: Request) -> float:
    """Tokens of the prompt, by its size, and the most that the answers may have; at least 1."""
    payload = request.payload or b""
    prompt = len(payload) / BYTES_PER_TOKEN
    return max(1.0, prompt + _answer_tokens(payload))


def _answer_tokens(payload: bytes) -> float:
    try:
        asked = _decoder.decode(payload)
    except (msgspec.MsgspecError, RecursionError):
        return UNLIMITED_TOKENS
    limit = asked.max_completion_tokens or asked.max_tokens or UNLIMITED_TOKENS
    return max(0.0, limit) * max(1.0, asked.n or 1.0)
