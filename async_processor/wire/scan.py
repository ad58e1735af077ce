"""Cuts a JSON object into its members without decoding it.

That is for messages that no decoder takes, of which two kinds still have to be answered or passed
on: broken ones (cut off, not UTF-8, nested too deeply), whose sender may be named in a part that
can be read, and ones with half a surrogate pair, which JSON allows and strict decoders refuse. And
it tells where a member stands, so that one can be replaced and no other byte is touched.

Whoever writes such a message may mean harm: whoever reads one bounds the work by `TOKENS`, and what
was not come to by then counts as cut off.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Final

import msgspec

TOKENS: Final = 250_000
"""Marks and strings to look at in what a stranger sent; a run of brackets that open, or close, is
one."""

HALVES: Final = 50_000
"""Halves of surrogate pairs that `without_halves` replaces."""

_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_TOKEN: Final = re.compile(_STRING + rb'|["{}\[\]:,]', re.DOTALL)
_NESTED: Final = re.compile(_STRING + rb'|[{\[]++|[}\]]++|"', re.DOTALL)
"""Inside of a nested value only what may end it counts."""

_HALF: Final = rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
_PAIR: Final = rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_UP_TO_HALF: Final = re.compile(
    rb"((?:[^\\]++|" + _PAIR + rb"|(?!" + _HALF + rb")\\.)*+)(" + _HALF + rb")?", re.DOTALL
)

_string = msgspec.json.Decoder(str)


def members(text: bytes, *, tokens: float = math.inf) -> dict[str, bytes]:
    """The members of the object that `text` begins with, values as they stand.

    Never raises and never recurses: it returns what was complete before the text went wrong, or
    within so many marks and strings. Of equal names the last wins.
    """
    found: dict[str, bytes] = {}
    for name, start, end in spans(text, tokens=tokens):
        key = text_of(name)
        if key is not None:
            found[key] = text[start:end].strip()
    return found


def spans(text: bytes, *, tokens: float = math.inf) -> Iterator[tuple[bytes, int, int]]:
    """Like `members`: each name as it is written, and where its value starts and ends.

    Equal names come each time, and a value has the spaces around it. After so many tokens it stops.
    """
    inside, name, start, at = False, b"", 0, 0
    while tokens > 0 and (token := _TOKEN.search(text, at)):
        tokens -= 1
        mark, at = token.group(), token.end()
        if mark == b'"':  # a string without an end: what follows could be anything
            break
        if mark in b"}]," and start:
            yield name, start, token.start()
            start = 0
        if mark in b"}]":
            break
        if mark in b"{[":
            if inside:
                at, tokens = _end_of_nested(text, at, tokens)
            inside = True
        elif inside and mark == b":":
            start = at
        elif inside and not start:
            name = mark


def _end_of_nested(text: bytes, at: int, tokens: float) -> tuple[int, float]:
    """Where a value ends that opened just before, and the tokens left to look at.

    It is the end of the text where the value does not end within them.
    """
    depth = 1
    for token in _NESTED.finditer(text, at):
        tokens -= 1
        mark = token[0][:1]
        if tokens < 0 or token[0] == b'"':
            break
        if mark in b"{[":
            depth += token.end() - token.start()
        elif mark in b"}]":
            depth -= token.end() - token.start()
        if depth <= 0:
            return token.end() + depth, tokens
    return len(text), tokens


def text_of(value: bytes) -> str | None:
    """A JSON string's text, half surrogate pairs as U+FFFD; None when it is no string."""
    try:
        return _string.decode(without_halves(value))
    except msgspec.MsgspecError:
        return None


def without_halves(text: bytes) -> bytes:
    r"""The same text with each escaped half of a surrogate pair as \ufffd: equal in length.

    Halves beyond the first `HALVES` stay.
    """
    if b"\\ud" not in text and b"\\uD" not in text:
        return text
    return _UP_TO_HALF.sub(_with_whole, text, HALVES)


def _with_whole(match: re.Match[bytes]) -> bytes:
    return match[1] + rb"\ufffd" if match[2] else match[1]
