"""What may be shown: texts without secrets and without characters that could forge a line."""

from __future__ import annotations

import codecs
import re
from typing import Final

MASK: Final = "***"

_CREDENTIALS: Final = re.compile(
    r"""://(?:
        (?P<user>[^\s/?\#:@]*:)?[^\s/?\#]*@                # user:password@ or token@
      | (?P<odd>[^\s/?\#:@]*:)(?!\d+(?:[/?\#,\s]|$))[^\s@]*@  # a password with a raw slash in it
    )""",
    re.VERBOSE,
)
_SECRET_PARAMETER: Final = re.compile(
    r"([?&](?:[\w-]*(?:password|passwd|secret|token|api[_-]?key|signature)|key|sig|auth)=)[^&\s#]*",
    re.IGNORECASE,
)
_SECRET_NAME: Final = re.compile(
    r"authorization|cookie|passw(or)?d|secret|api[-_]?key|credential"
    r"|(auth|bearer|access|refresh|session|id)[-_]?token|^token$|^x-.*-(token|key)$",
    re.IGNORECASE,
)
_escape: Final = codecs.getencoder("unicode_escape")
"""Looked up here: what goes wrong while the interpreter shuts down can find no codec any more."""
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def mask_url(text: str) -> str:
    """The text with every URL in it robbed of its password and of secret query parameters."""
    if "://" not in text:
        return text
    return _SECRET_PARAMETER.sub(rf"\1{MASK}", _CREDENTIALS.sub(_without_password, text))


def _without_password(match: re.Match[str]) -> str:
    return f"://{match['user'] or match['odd'] or ''}{MASK}@"


def is_secret(name: str) -> bool:
    """Whether a header or field of this name holds a secret."""
    return _SECRET_NAME.search(name) is not None


def one_line(text: str) -> str:
    """The text with control characters, line separators and bidi overrides written as escapes."""
    return _UNPRINTABLE.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    return _escape(match[0])[0].decode("ascii")
