"""Names and addresses: header names, paths, URLs."""

from __future__ import annotations

import re
from typing import Annotated, Final
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, Field

_REDIS_SCHEMES: Final = (
    "redis://", "rediss://", "redis+sentinel://", "rediss+sentinel://", "unix://",
)  # fmt: skip
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


def _http_url(url: str) -> str:
    parts = _split(_http_url_with_query(url))
    if parts.query or parts.fragment:
        raise ValueError("must be a URL without a query or a fragment")
    return url


def _http_url_with_query(url: str) -> str:
    parts = _split(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an http:// or https:// URL with a host")
    return url


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise ValueError(f"must be a URL ({error})") from None
    return parts


def _redis_url(url: str) -> str:
    if not url.startswith(_REDIS_SCHEMES):
        raise ValueError("must begin with " + ", ".join(_REDIS_SCHEMES))
    return url


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
RedisUrl = Annotated[str, AfterValidator(_redis_url)]
"""A URL of a Redis that may carry a user and a password."""
HeaderValue = Annotated[str, AfterValidator(_header_value)]
"""The value of an HTTP header."""
