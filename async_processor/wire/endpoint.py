"""Which `endpoint` a message may ask for: a path and nothing else, so that it cannot reach
another host or leave the operator's part of this one."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote_to_bytes

_PATH: Final = re.compile(r"/(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*")
_CONTROL: Final = re.compile(rb"[\x00-\x1f\x7f]")
_SEPARATOR: Final = re.compile(rb"[/;]")


def endpoint_fault(path: str) -> str:
    """Why a path is refused; empty when it is allowed."""
    if not path.startswith("/"):
        return "must be a path that begins with /"
    if "?" in path or "#" in path:
        return "must be a path only, without ? or #"
    if not _PATH.fullmatch(path):
        return "has a character that a URL path cannot hold; percent-encode it"
    return _decoded_fault(unquote_to_bytes(path)) if "%" in path else _steps_fault(path.encode())


def _decoded_fault(path: bytes) -> str:
    """Servers decode a path once before they use it, so the rules hold for what they see."""
    if b"%" in path:
        return "must not contain an encoded percent sign"
    if b"\\" in path or b"?" in path or b"#" in path:
        return "must not contain an encoded backslash, ? or #"
    if _CONTROL.search(path):
        return "must not contain an encoded control character"
    return _steps_fault(path)


def _steps_fault(path: bytes) -> str:
    if b"//" in path:
        return "must not contain //"
    if b".." in _SEPARATOR.split(path):
        return "must not contain .."
    return ""
