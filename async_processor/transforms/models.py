"""Asks for another model than the message does; no other byte of the payload changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from async_processor.wire import scan

ANY: Final = "*"
"""Stands for every model that has no entry of its own, and for none at all."""

_MODEL: Final = b'"model"'


class Models:
    """Which model is asked for instead of which.

    A name counts however it is escaped, and where a payload has several models, each is replaced:
    servers differ in which of them they read. Without an entry for `ANY` a payload without a model,
    or with one that is no text, stays as it is; with one it gets that model as its first member.
    """

    def __init__(self, instead_of: Mapping[str, str]) -> None:
        encoded = {old: msgspec.json.encode(new) for old, new in instead_of.items()}
        self._else = encoded.pop(ANY, None)
        self._instead_of = encoded

    def replaced(self, payload: bytes) -> bytes:
        """The payload to send; the very same bytes where nothing is to be replaced."""
        found = list(_models(payload))
        if not found:
            return payload if self._else is None else _added(payload, self._else)
        parts, at = [], 0
        for start, end in found:
            new = self._new(payload[start:end])
            if new is not None:
                parts += [payload[at:start], new]
                at = end
        return b"".join([*parts, payload[at:]]) if parts else payload

    def _new(self, value: bytes) -> bytes | None:
        old = scan.text_of(value)
        return self._else if old is None else self._instead_of.get(old, self._else)


def _models(payload: bytes) -> Iterator[tuple[int, int]]:
    """Where the values of the payload's own models stand, without the spaces around them."""
    for name, start, end in scan.spans(payload):
        if name == _MODEL or (b"\\" in name and scan.text_of(name) == "model"):
            value = payload[start:end]
            yield end - len(value.lstrip()), start + len(value.rstrip())


def _added(payload: bytes, model: bytes) -> bytes:
    before, brace, rest = payload.partition(b"{")
    if not brace or before.strip():
        return payload  # no object: the server says so
    comma = b"" if rest.lstrip().startswith(b"}") else b","
    return b"".join([before, b"{", _MODEL, b":", model, comma, rest])
