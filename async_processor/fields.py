"""The types that settings are made of: durations, sizes, names, URLs and secrets.

Everything reads as people write it in YAML, and a number may also be a string, because a value
taken from the environment always is one. A validator's message says what is allowed; where and
what stands there is added by whoever reports the error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Final, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.json_schema import WithJsonSchema

MASK: Final = "***"
"""What stands in the place of a secret."""

_DURATION_UNITS: Final = {
    "ns": Decimal("1e-9"),
    "us": Decimal("1e-6"),
    "µs": Decimal("1e-6"),
    "μs": Decimal("1e-6"),
    "ms": Decimal("1e-3"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
}
_DURATION_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_NUMBER: Final = re.compile(r"\d+(?:\.\d*)?|\.\d+", re.ASCII)
_SIZE: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([KMGT]i?)?B?", re.ASCII)
_SIZE_UNITS: Final = {
    "": 1,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
# As far as the last @, for a password that was not escaped may hold any character.
_USERINFO: Final = re.compile(r"(?<=://)\S*@")
_PASSWORD_PARAMETER: Final = re.compile(r"(?<=[?&])(password|username)=[^&\s]*")


def read_duration(value: object) -> float:
    """Seconds from `500ms`, `5s`, `2m`, `1h`, `1h30m` or a number of seconds.

    Raises ValueError for anything else, negative durations included.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _at_least_zero(float(value))
    if isinstance(value, str):
        return _duration_from_text(value.strip())
    raise ValueError("must be a duration like 500ms, 5s, 2m or 1h, or a number of seconds")


def _duration_from_text(text: str) -> float:
    if _NUMBER.fullmatch(text):
        return float(text)
    parts = _DURATION_PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError("must be a duration like 500ms, 5s, 2m or 1h, or a number of seconds")
    return float(sum(Decimal(number) * _DURATION_UNITS[unit] for number, unit in parts))


def _at_least_zero(seconds: float) -> float:
    # NaN fails this comparison too, and infinity is refused by the field's own rule.
    if not 0 <= seconds < float("inf"):
        raise ValueError("must be a duration of 0 or more")
    return seconds


def read_size(value: object) -> int:
    """Bytes from `16MiB`, `32KiB`, `1GB` or a number of bytes; raises ValueError for others."""
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            raise ValueError("must be a size of 0 or more")
        return value
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError("must be a size like 512KiB, 16MiB or 1GB, or a number of bytes")
    return int(Decimal(match[1]) * _SIZE_UNITS[match[2] or ""])


def without_password(url: str) -> str:
    """The text with user and password of every URL in it masked."""
    return _PASSWORD_PARAMETER.sub(rf"\1={MASK}", _USERINFO.sub(f"{MASK}@", url))


def _no_boolean(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("must be a number")  # noqa: TRY004 - a TypeError would not be reported
    return value


def _http_url(url: str) -> str:
    parts = _split(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an http:// or https:// URL with a host")
    if parts.query or parts.fragment:
        raise ValueError("must be a URL without a query or a fragment")
    return url


def _http_url_with_query(url: str) -> str:
    parts = _split(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an http:// or https:// URL with a host")
    return url


def _split(url: str) -> Any:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise ValueError(f"must be a URL ({error})") from None
    return parts


def _url_path(path: str) -> str:
    if not path.startswith("/") or "//" in path or ".." in path.split("/"):
        raise ValueError("must be a path that begins with / and has no // and no ..")
    if any(character <= " " or character == "\x7f" for character in path):
        raise ValueError("must be a path without spaces and control characters")
    return path


def _header_name(name: str) -> str:
    if not _TOKEN.fullmatch(name):
        raise ValueError("must be a header name (letters, digits and - _ .)")
    return name


def _header_name_or_off(name: str) -> str:
    return _header_name(name) if name else name


def _header_value(value: str) -> str:
    if any(ord(character) < 32 or ord(character) == 127 for character in value):
        raise ValueError("must be a header value without control characters")
    return value


class Hidden:
    """Marks a field of which nothing may be shown but whether it is empty."""


def _shown(value: Any, *, hidden: bool) -> Any:
    """The value as it may be shown: without passwords of URLs, or not at all."""
    match value:
        case str() if hidden:
            return MASK if value else value
        case str():
            return without_password(value)
        case dict():
            return {key: _shown(item, hidden=hidden) for key, item in value.items()}
        case tuple():
            return tuple(_shown(item, hidden=hidden) for item in value)
        case _:
            return value


_SCHEMA_DURATION: Final = WithJsonSchema(
    {
        "anyOf": [
            {"type": "number", "minimum": 0},
            {"type": "string", "pattern": r"^(\d+(\.\d+)?(ns|us|ms|s|m|h)?)+$"},
        ],
        "description": "500ms, 5s, 2m, 1h, or a number of seconds",
    }
)
_SCHEMA_SIZE: Final = WithJsonSchema(
    {
        "anyOf": [
            {"type": "integer", "minimum": 0},
            {"type": "string", "pattern": r"^\d+(\.\d+)?\s*([KMGT]i?)?B?$"},
        ],
        "description": "512KiB, 16MiB, 1GB, or a number of bytes",
    }
)

Duration = Annotated[float, BeforeValidator(read_duration), _SCHEMA_DURATION]
"""Seconds, 0 or more."""
PositiveDuration = Annotated[float, BeforeValidator(read_duration), Field(gt=0), _SCHEMA_DURATION]
"""Seconds, more than 0."""
ByteSize = Annotated[int, BeforeValidator(read_size), Field(gt=0), _SCHEMA_SIZE]
"""Bytes, more than 0."""
Count = Annotated[int, Field(ge=1), BeforeValidator(_no_boolean)]
"""A whole number above 0."""
Port = Annotated[int, Field(ge=0, le=65535), BeforeValidator(_no_boolean)]
"""A TCP port; 0 lets the system choose."""
Number = Annotated[float, BeforeValidator(_no_boolean)]
"""A finite number."""
NonNegative = Annotated[float, Field(ge=0), BeforeValidator(_no_boolean)]
"""A finite number, 0 or more."""
Share = Annotated[float, Field(ge=0, le=1), BeforeValidator(_no_boolean)]
"""A number in [0, 1]."""
NonEmpty = Annotated[str, Field(min_length=1)]
"""A text that is not empty."""
HttpUrl = Annotated[str, AfterValidator(_http_url)]
"""A base URL to which a path is appended."""
HttpUrlWithQuery = Annotated[str, AfterValidator(_http_url_with_query)]
"""A URL that is fetched as it stands."""
UrlPath = Annotated[str, AfterValidator(_url_path)]
"""A path on the inference gateway."""
HeaderName = Annotated[str, AfterValidator(_header_name)]
"""The name of an HTTP header."""
OptionalHeaderName = Annotated[str, AfterValidator(_header_name_or_off)]
"""The name of an HTTP header; empty turns it off."""
BrokerUrl = Annotated[str, Field(min_length=1)]
"""A URL that may carry a user and a password."""
Secret = Annotated[str, Hidden()]
"""A text that is never shown."""
SecretHeaders = Annotated[dict[HeaderName, Annotated[str, AfterValidator(_header_value)]], Hidden()]
"""Headers whose values are never shown."""


class Section(BaseModel):
    """A part of the settings: frozen, unknown keys refused, secrets masked when shown.

    `planned` names keys that a configuration may rightly use and that this version cannot obey.
    """

    planned: ClassVar[frozenset[str]] = frozenset()

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        hide_input_in_errors=True,
        validate_default=False,
        use_attribute_docstrings=True,
    )

    def shown(self, name: str) -> Any:
        """The value of a field as it may be shown; sections in it show themselves."""
        return _shown(getattr(self, name), hidden=self.hides(name))

    @classmethod
    def hides(cls, name: str) -> bool:
        """Whether the value of a field must not be shown."""
        return any(isinstance(mark, Hidden) for mark in cls.model_fields[name].metadata)

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        return [(name, self.shown(name)) for name in type(self).model_fields]


class TlsSettings(Section):
    """How a TLS connection is made: whom to trust, and who we are."""

    ca_file: str = ""
    """Certificates to trust, PEM; default: the system's."""
    cert_file: str = ""
    """Our own certificate, PEM, for servers that ask for one."""
    key_file: str = ""
    """The key of `cert_file`, PEM."""
    insecure: bool = False
    """Accept any certificate: for tests only."""

    @model_validator(mode="after")
    def _whole_pair(self) -> Self:
        if bool(self.cert_file) != bool(self.key_file):
            raise ValueError("cert_file and key_file belong together: set both or none")
        return self
