"""Secrets: which settings are never shown, and how the others lose their passwords."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from async_processor.fields.headers import HeaderValue, OperatorsHeader

MASK: Final = "***"
"""What stands in the place of a secret."""

# As far as the last @, for a password that was not escaped may hold any character.
_USERINFO: Final = re.compile(r"(?<=://)\S*@")
_PASSWORD_PARAMETER: Final = re.compile(r"(?<=[?&])(password|username)=[^&\s]*")


def without_password(url: str) -> str:
    """The text with user and password of every URL in it masked."""
    return _PASSWORD_PARAMETER.sub(rf"\1={MASK}", _USERINFO.sub(f"{MASK}@", url))


class Hidden:
    """Marks a field of which nothing may be shown but whether it is empty."""


def shown(value: Any, *, hidden: bool) -> Any:
    """The value as it may be shown: without passwords of URLs, or not at all."""
    match value:
        case str() if hidden:
            return MASK if value else value
        case str():
            return without_password(value)
        case dict():
            return {key: shown(item, hidden=hidden) for key, item in value.items()}
        case tuple():
            return tuple(shown(item, hidden=hidden) for item in value)
        case _:
            return value


Secret = Annotated[HeaderValue, Hidden()]
"""A text that is sent in a header and never shown."""
SecretHeaders = Annotated[dict[OperatorsHeader, HeaderValue], Hidden()]
"""Headers whose values are never shown."""
