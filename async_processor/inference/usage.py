"""Reads how many tokens a call used from an OpenAI-compatible answer."""

from __future__ import annotations

from typing import Annotated

import msgspec

Tokens = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
"""No answer has more; a server that says so would spoil the counters for ever."""


class Usage(msgspec.Struct, frozen=True):
    """The `usage` object of an answer."""

    prompt_tokens: Tokens = 0
    completion_tokens: Tokens = 0


class _Body(msgspec.Struct, frozen=True):
    usage: Usage | None = None


_decoder = msgspec.json.Decoder(_Body)


def read(body: bytes) -> Usage | None:
    """The answer's usage; None when it has none that makes sense."""
    try:
        return _decoder.decode(body).usage
    except (msgspec.MsgspecError, RecursionError):
        return None
