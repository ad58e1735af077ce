"""Where something is: hosts, ports, URLs.

A message never repeats the address, which may hold a password.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Annotated, Final
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator

_LABEL: Final = r"\w(?:[\w-]{0,61}\w)?"
_HOST: Final = re.compile(rf"(?=.{{1,253}}$)(?:{_LABEL}\.)*{_LABEL}\.?")
_OF_AN_ADDRESS: Final = re.compile(r"[\d.]+|.*:.*", re.ASCII)
_PLACE: Final = re.compile(
    r"(?:\[(?P<six>[^\]]+)\]|(?P<host>[^:]+))(?::(?P<port>\d{1,5}))?", re.ASCII
)
_HIGHEST_PORT: Final = 65535


def split(url: str) -> SplitResult:
    """The parts of a URL that has a legal host and port, if any. Raises ValueError."""
    if any(character <= " " or character == "\x7f" for character in url):
        raise ValueError("must be a URL without spaces and control characters")
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError("must be a URL whose host is a name or an IP address") from None
    if parts.hostname:
        check_host(parts.hostname)
    _check_port(parts)
    return parts


def is_host(text: str) -> bool:
    """Whether it is the name of a host or an IP address."""
    if not _OF_AN_ADDRESS.fullmatch(text):
        return _HOST.fullmatch(text) is not None
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def check_host(text: str) -> None:
    """Raises ValueError for what is neither a host's name nor an IP address."""
    if not is_host(text):
        raise ValueError("must be a URL whose host is a name or an IP address")


def _check_port(parts: SplitResult) -> None:
    try:
        legal = parts.port != 0
    except ValueError:
        legal = False
    if not legal:
        raise ValueError(f"must be a URL whose port is 1 to {_HIGHEST_PORT}")


def host_and_port(text: str, default_port: int) -> str:
    """`host:port` from `host` or `host:port`, an IPv6 address in brackets. Raises ValueError."""
    match = _PLACE.fullmatch(text)
    host = match and (match["six"] or match["host"])
    port = int(match["port"] or default_port) if match else 0
    if not match or not host or not is_host(host) or not 0 < port <= _HIGHEST_PORT:
        raise ValueError("must be a host, or host:port")
    return f"[{host}]:{port}" if match["six"] else f"{host}:{port}"


def _http_url(url: str) -> str:
    parts = split(_http_url_with_query(url))
    if parts.query or parts.fragment:
        raise ValueError("must be a URL without a query or a fragment")
    return url


def _http_url_with_query(url: str) -> str:
    parts = split(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an http:// or https:// URL with a host")
    return url


def _bind(address: str) -> str:
    if address and not is_host(address):
        raise ValueError("must be an IP address, like 0.0.0.0, 127.0.0.1 or ::, or a host")
    return address


HttpUrl = Annotated[str, AfterValidator(_http_url)]
"""A base URL to which a path is appended."""
HttpUrlWithQuery = Annotated[str, AfterValidator(_http_url_with_query)]
"""A URL that is fetched as it stands."""
BindAddress = Annotated[str, AfterValidator(_bind)]
"""An address of this host; empty means all."""
