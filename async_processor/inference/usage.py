"""Reads how many tokens a call used from an OpenAI-compatible answer."""

from __future__ import annotations

import msgspec


class Usage(msgspec.Struct, frozen=True):
    """The `usage` object of an answer."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Body(msgspec.Struct, frozen=True):
    usage: Usage | None = None


_decoder = msgspec.json.Decoder(_Body)


def read(body: bytes) -> Usage | None:
    """The answer's usage; None when it has none or is no JSON object."""
    try:
        return _decoder.decode(body).usage
    except (msgspec.MsgspecError, RecursionError):
        return None
