"""Where a Redis is and how to reach it: URLs, Sentinel, TLS, time limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from async_processor.errors import ConfigurationError, Problem
from async_processor.fields import TlsSettings, host_and_port
from async_processor.redis_io.url import SENTINEL_PORT

CONNECT_SECONDS: Final = 3.0
COMMAND_SECONDS: Final = 5.0
_SENT_PER_SECOND: Final = 4 * 2**20
_HEALTH_SECONDS: Final = 15


class SentinelAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Sentinels, and the name of the master that they watch."""

    hosts: tuple[tuple[str, int], ...]
    service: str
    database: int
    user: str | None
    password: str | None
    sentinel_user: str | None
    sentinel_password: str | None
    encrypted: bool


def is_sentinel(url: str) -> bool:
    """Whether the URL names Sentinels rather than a server."""
    return url.startswith(("redis+sentinel://", "rediss+sentinel://"))


def is_encrypted(url: str) -> bool:
    """Whether the URL asks for TLS."""
    return url.startswith("rediss")


def sentinel_address(url: str) -> SentinelAddress:
    """Read redis+sentinel://[user:password@]host[:port][,host[:port]...]/service[/database].

    The query may hold `sentinel_username` and `sentinel_password`, for Sentinels that ask for
    them. The URL has been checked.
    """
    parts = urlsplit(url)
    login, _, places = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    service, _, database = parts.path.strip("/").partition("/")
    query = parse_qs(parts.query)
    return SentinelAddress(
        hosts=tuple(_host(place) for place in places.split(",")),
        service=service,
        database=int(database or 0),
        user=unquote(user) or None,
        password=unquote(password) or None,
        sentinel_user=query.get("sentinel_username", [None])[0],
        sentinel_password=query.get("sentinel_password", [None])[0],
        encrypted=is_encrypted(url),
    )


def place(url: str) -> str:
    """The host and port of a URL, without user and password, for people to read."""
    parts = urlsplit(url)
    return parts.netloc.rpartition("@")[2] or parts.path


def command_seconds(size: int) -> float:
    """How long commands of `size` bytes together may take."""
    return COMMAND_SECONDS + size / _SENT_PER_SECOND


def time_limits() -> dict[str, Any]:
    """Bounds for connecting; those for commands are kept by the clients themselves.

    With a `socket_timeout` redis-py sends inside of `asyncio.wait_for`, which on Python 3.11 may
    swallow a cancellation, and with it the end of a task.
    """
    return {
        "socket_connect_timeout": CONNECT_SECONDS,
        "socket_timeout": None,
        "health_check_interval": _HEALTH_SECONDS,
    }


def tls_options(tls: TlsSettings) -> dict[str, Any]:
    """What redis-py is to be told about TLS. Raises ConfigurationError for missing files."""
    _require_files(tls)
    options: dict[str, Any] = {}
    if tls.ca_file:
        options["ssl_ca_certs"] = tls.ca_file
    if tls.cert_file:
        options |= {"ssl_certfile": tls.cert_file, "ssl_keyfile": tls.key_file or tls.cert_file}
    if tls.insecure:
        options |= {"ssl_cert_reqs": "none", "ssl_check_hostname": False}
    return options


def refused(message: str) -> ConfigurationError:
    """The URL is wrong; the message must not repeat it, for it may hold a password."""
    return ConfigurationError([Problem(path="transport.url", message=message)])


def _require_files(tls: TlsSettings) -> None:
    named = {name: getattr(tls, name) for name in ("ca_file", "cert_file", "key_file")}
    problems = [
        Problem(path=f"transport.tls.{name}", message=f"{path} cannot be found")
        for name, path in named.items()
        if path and not Path(path).is_file()
    ]
    if problems:
        raise ConfigurationError(problems)


def _host(place: str) -> tuple[str, int]:
    host, _, port = host_and_port(place, SENTINEL_PORT).rpartition(":")
    return host.strip("[]"), int(port)
