"""The border to redis-py's exceptions: what leaves `redis_io` is one of ours.

The texts name hosts and ports, and what the server said; never a user, a password or a value.
"""

from __future__ import annotations

import re
import ssl
from typing import Final

from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterDownError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TryAgainError,
)

from async_processor.errors import AsyncProcessorError, BrokerRefused, BrokerUnavailable


class AnswerLost(BrokerUnavailable):
    """The command was sent and no answer came: the server may have executed it."""


class AccessDenied(BrokerRefused):
    """Redis refuses the user, the password or the permission."""


class ScriptMissing(BrokerRefused):
    """Redis does not know the script under this digest (any more)."""


FOREIGN: Final = (RedisError, RedisClusterException, OSError)
"""Everything that redis-py raises while it talks to a server."""

_PASSING: Final = (
    BusyLoadingError,
    ClusterDownError,
    OutOfMemoryError,
    ReadOnlyError,
    TryAgainError,
)
_PASSING_CODES: Final = re.compile(
    r"(?:^|[ :-])(?:LOADING|READONLY|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|OOM|BUSY|MISCONF|NOREPLICAS"
    r"|UNBLOCKED)\b"
)
_CLOSING: Final = re.compile(r"(?:ERR )?Protocol error")
"""What Redis says, if it gets to it, when an argument is larger than proto-max-bulk-len."""
_DEMOTED: Final = re.compile(r"(?:^|[ :-])READONLY\b")
_DENIED: Final = (AuthenticationError, AuthorizationError, NoPermissionError)


def from_answer(error: Exception) -> AsyncProcessorError:
    """What an error that the server answered means to us."""
    text = _text(error)
    if isinstance(error, NoScriptError) or text.startswith("NOSCRIPT"):
        return ScriptMissing(f"Redis: {text}")
    if isinstance(error, _DENIED) or text.startswith(("NOPERM", "NOAUTH", "WRONGPASS")):
        return AccessDenied(f"Redis denies access: {text}")
    if is_last(error):
        return AnswerLost(f"Redis closes the connection: {text}")
    if isinstance(error, _PASSING) or _PASSING_CODES.search(text):
        return BrokerUnavailable(f"Redis cannot serve now: {text}")
    return BrokerRefused(f"Redis refuses: {text}")


def is_last(error: Exception) -> bool:
    """Whether the server closes the connection after this answer."""
    return _CLOSING.match(_text(error)) is not None


def leads_astray(error: Exception) -> bool:
    """Whether nothing more should go over the connection: the server closes it after this answer,
    or has become a replica, and whoever connects anew finds the master."""
    return is_last(error) or _DEMOTED.search(_text(error)) is not None


def from_connecting(error: Exception, place: str) -> AsyncProcessorError:
    """What a failed connection means; nothing of ours has been sent over it."""
    if isinstance(error, _DENIED):
        return AccessDenied(f"Redis at {place} denies access: {_text(error)}")
    if _untrusted(error):
        return AccessDenied(f"Redis at {place} shows a certificate that is not trusted: {error}")
    if isinstance(error, ResponseError):
        return from_answer(error)
    return BrokerUnavailable(f"Redis at {place} cannot be reached: {_text(error)}")


def from_talking(error: Exception, place: str) -> AsyncProcessorError:
    """What an error means that came while a command was under way."""
    if isinstance(error, (*_PASSING, *_DENIED, ResponseError)):
        return from_answer(error)
    return AnswerLost(f"the connection to Redis at {place} was lost: {_text(error)}")


def _untrusted(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
