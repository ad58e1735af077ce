"""Writes `multipart/form-data` (RFC 7578) as browsers do."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import Final

from async_processor.transforms.base import Rewrite

_ESCAPES: Final[Mapping[int, str]] = str.maketrans({'"': "%22", "\r": "%0D", "\n": "%0A"})
"""Of a field's name, as the HTML standard has it: nothing can end the line."""


def form(fields: Iterable[tuple[str, str]]) -> Rewrite:
    """A form of plain fields. Its boundary is random: no value can hold it by intent."""
    boundary = secrets.token_hex(16)
    parts = [_part(boundary, name, value) for name, value in fields]
    return Rewrite(
        body="".join([*parts, f"--{boundary}--\r\n"]).encode(errors="replace"),
        content_type=f"multipart/form-data; boundary={boundary}",
    )


def _part(boundary: str, name: str, value: str) -> str:
    disposition = f'Content-Disposition: form-data; name="{name.translate(_ESCAPES)}"'
    return f"--{boundary}\r\n{disposition}\r\n\r\n{value}\r\n"
