"""Cuts a JSON object into its members without decoding it, for messages that no decoder takes.

Two kinds of them still have to be answered or passed on: broken ones (cut off, not UTF-8, nested
too deeply), whose sender may be named in a part that can be read, and ones with half a surrogate
pair, which JSON allows and strict decoders refuse.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["{}\[\]:,]', re.DOTALL)

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
    depth, name, start = 0, b"", 0
    for token in _TOKEN.finditer(text):
        mark = token.group()
        if mark == b'"':  # a string without an end: what follows could be anything
            break
        if mark in b"}]," and depth == 1 and start:
            _keep(found, name, text[start : token.start()])
            start = 0
        if mark in b"{[":
            depth += 1
        elif mark in b"}]":
            depth -= 1
            if depth <= 0:
                break
        elif depth == 1 and mark == b":":
            start = token.end()
        elif depth == 1 and not start:
            name = mark
    return found


def _keep(found: dict[str, bytes], name: bytes, value: bytes) -> None:
    key = text_of(name)
    if key is not None:
        found[key] = value.strip()


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
