"""What a request costs its tenant: one, or the tokens it may take.

Whatever a message asks for, its cost is a number of reasonable size, so that no message can upset
the shares of others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from async_processor.wire.request import Request

Cost = Callable[[Request], float]

BYTES_PER_TOKEN: Final = 4
"""A rule of thumb for English text; shares need the ratio between tenants, not the exact count."""

UNLIMITED_TOKENS: Final = 256
"""What a request counts for its answer when it sets no limit, or none that can be read: also one
whose payload is stored apart (`payload_ref`), which is fetched only when it runs."""

MOST_TOKENS: Final = 10_000_000
"""What a request counts at most."""

MOST_ANSWERS: Final = 128
"""As many as OpenAI's API gives at once."""


class _Payload(msgspec.Struct, frozen=True):
    max_tokens: float | None = None
    max_completion_tokens: float | None = None
    n: float | None = None


_decoder = msgspec.json.Decoder(_Payload)


def one(_request: Request) -> float:
    """Every request costs the same."""
    return 1.0


def tokens(request: Request) -> float:
    """Tokens of the prompt, by its size, and the most that the answers may have; 1 to
    `MOST_TOKENS`."""
    payload = request.payload or b""
    prompt = len(payload) / BYTES_PER_TOKEN
    return _bounded(prompt + _answer_tokens(payload), 1, MOST_TOKENS)


def _answer_tokens(payload: bytes) -> float:
    try:
        asked = _decoder.decode(payload)
    except (msgspec.MsgspecError, RecursionError):
        return UNLIMITED_TOKENS
    limit = asked.max_completion_tokens or asked.max_tokens or UNLIMITED_TOKENS
    return _bounded(limit, 0, MOST_TOKENS) * _bounded(asked.n or 1, 1, MOST_ANSWERS)


def _bounded(value: float, least: float, most: float) -> float:
    return max(least, min(value, most))
