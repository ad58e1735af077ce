"""What the URL of a Redis may say; it never stands in a message, for it may hold a password."""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import SplitResult, parse_qsl

from pydantic import AfterValidator

from async_processor.fields import host_and_port, split

SCHEMES: Final = (
    "redis://", "rediss://", "redis+sentinel://", "rediss+sentinel://", "unix://",
)  # fmt: skip
SENTINEL_PORT: Final = 26379

_LIKE: Final = (
    "like redis://user:password@host:6379/0, special characters in user and password "
    "percent-encoded"
)
_LOGIN: Final = ("db", "password", "username")
_FILES: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_VERIFYING: Final = ("ssl_cert_reqs", "ssl_check_hostname")
_OPTIONS: Final = {
    "redis": _LOGIN,
    "rediss": (*_LOGIN, *_FILES, *_VERIFYING),
    "unix": _LOGIN,
    "redis+sentinel": ("sentinel_password", "sentinel_username"),
    "rediss+sentinel": ("sentinel_password", "sentinel_username"),
}
"""What may stand after the question mark, by the scheme; redis-py would take much more, some of
which our clients cannot work with."""


def checked(url: str) -> str:
    """The URL, which a client can be made for. Raises ValueError with what is allowed."""
    if not url.startswith(SCHEMES):
        raise ValueError("must begin with " + ", ".join(SCHEMES))
    parts = _parts(url)
    _check_options(parts)
    if parts.scheme == "unix":
        _check_socket(parts)
    elif parts.scheme in ("redis", "rediss"):
        _check_server(parts)
    else:
        _check_sentinels(parts)
    return url


def _parts(url: str) -> SplitResult:
    if "#" in url:
        raise ValueError(f"must be a URL without a fragment, {_LIKE}")
    scheme, _, rest = url.partition("://")
    if not scheme.endswith("sentinel"):
        return _split(url)
    # The places of several Sentinels are no host and port; each is checked by itself.
    places, _, path = rest.partition("/")
    return split(f"{scheme}:///{path}")._replace(netloc=places)


def _split(url: str) -> SplitResult:
    try:
        return split(url)
    except ValueError as error:
        raise ValueError(f"{error}, {_LIKE}") from None


def _check_options(parts: SplitResult) -> None:
    known = _OPTIONS[parts.scheme]
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if not options.keys() <= set(known):
        raise ValueError(f"must have no unknown options; known: {', '.join(known)}")
    _check_database(options.get("db", ""))


def _check_database(number: str) -> None:
    if number and not (number.isdecimal() and number.isascii()):
        raise ValueError("must end in the number of a database, like /0")


def _check_socket(parts: SplitResult) -> None:
    if not parts.path.strip("/"):
        raise ValueError("must name the socket's file: unix:///run/redis.sock")


def _check_server(parts: SplitResult) -> None:
    if not parts.hostname:
        raise ValueError(f"must name a host, {_LIKE}")
    _check_database(parts.path.removeprefix("/"))


def _check_sentinels(parts: SplitResult) -> None:
    service, _, database = parts.path.strip("/").partition("/")
    if not service:
        raise ValueError("must name the service: redis+sentinel://host:port/service/0")
    _check_database(database)
    for place in parts.netloc.rpartition("@")[2].split(","):
        try:
            host_and_port(place, SENTINEL_PORT)
        except ValueError:
            raise ValueError("must name each Sentinel as host:port") from None


def _verifying(url: str) -> str:
    if any(f"{option}=" in url.partition("?")[2] for option in _VERIFYING):
        raise ValueError("must leave the checks of certificates to tls, which has insecure")
    return url


RedisUrl = Annotated[str, AfterValidator(checked), AfterValidator(_verifying)]
"""A URL of a Redis that may carry a user and a password."""
