"""Cuts a JSON object into its members without decoding it.

That is for messages that no decoder takes, of which two kinds still have to be answered or passed
on: broken ones (cut off, not UTF-8, nested too deeply), whose sender may be named in a part that
can be read, and ones with half a surrogate pair, which JSON allows and strict decoders refuse. And
it tells where a member stands, so that one can be replaced and no other byte is touched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

_STRING: Final = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_TOKEN: Final = re.compile(_STRING + rb'|["{}\[\]:,]', re.DOTALL)
_NESTED: Final = re.compile(_STRING + rb'|["{}\[\]]', re.DOTALL)
"""Inside of a nested value only what may end it counts."""

_ESCAPE: Final = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    rb"|\\."
)

_string = msgspec.json.Decoder(str)


def members(text: bytes) -> dict[str, bytes]:
    """The members of the object that `text` begins with, values as they stand.

    Never raises and never recurses: it returns what was complete before the text went wrong. Of
    equal names the last wins.
    """
    found: dict[str, bytes] = {}
    for name, start, end in spans(text):
        key = text_of(name)
        if key is not None:
            found[key] = text[start:end].strip()
    return found


def spans(text: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Like `members`: each name as it is written, and where its value starts and ends.

    Equal names come each time, and a value has the spaces around it.
    """
    inside, name, start, at = False, b"", 0, 0
    while token := _TOKEN.search(text, at):
        mark, at = token.group(), token.end()
        if mark == b'"':  # a string without an end: what follows could be anything
            break
        if mark in b"}]," and start:
            yield name, start, token.start()
            start = 0
        if mark in b"}]":
            break
        if mark in b"{[":
            at = _end_of_nested(text, at) if inside else at
            inside = True
        elif inside and mark == b":":
            start = at
        elif inside and not start:
            name = mark


def _end_of_nested(text: bytes, at: int) -> int:
    """Where a value ends that opened just before; the end of the text when it does not."""
    depth = 1
    for token in _NESTED.finditer(text, at):
        mark = token.group()
        if mark == b'"':
            break
        depth += (mark in b"{[") - (mark in b"}]")
        if not depth:
            return token.end()
    return len(text)


def text_of(value: bytes) -> str | None:
    """A JSON string's text, half surrogate pairs as U+FFFD; None when it is no string."""
    try:
        return _string.decode(without_halves(value))
    except msgspec.MsgspecError:
        return None


def without_halves(text: bytes) -> bytes:
    r"""The same text with each escaped half of a surrogate pair as \ufffd: equal in length."""
    if b"\\ud" not in text and b"\\uD" not in text:
        return text
    return _ESCAPE.sub(lambda match: rb"\ufffd" if match["half"] else match.group(), text)
