"""Google's errors stop here: what passes later is BrokerUnavailable, the rest BrokerRefused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from google.api_core import exceptions as google
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError

from async_processor.errors import BrokerRefused, BrokerUnavailable, ConfigurationError, Problem

_NO_CREDENTIALS: Final = (
    "no Google credentials: run as a service account (workload identity), set "
    "GOOGLE_APPLICATION_CREDENTIALS, or run `gcloud auth application-default login`"
)


class Missing(BrokerRefused):
    """The topic or subscription does not exist."""


class Denied(BrokerRefused):
    """This identity may not do that."""


class Exists(BrokerRefused):
    """What was to be created is there already."""


class Invalid(BrokerRefused):
    """What was sent is not acceptable, now or later."""


_REFUSALS: Final[tuple[tuple[type[google.GoogleAPICallError], type[BrokerRefused]], ...]] = (
    (google.NotFound, Missing),
    (google.Forbidden, Denied),
    (google.AlreadyExists, Exists),
    (google.InvalidArgument, Invalid),
    (google.FailedPrecondition, BrokerRefused),
    (google.OutOfRange, BrokerRefused),
    (google.MethodNotImplemented, BrokerRefused),
)


@contextmanager
def border(what: str) -> Iterator[None]:
    """Translate whatever a call to Google raises; `what` names it in words.

    Raises:
        BrokerUnavailable: it may work later; so may a token that was not accepted.
        BrokerRefused: it will not; `Missing`, `Denied`, `Exists` or `Invalid` where that is why.
        ConfigurationError: there are no credentials.
    """
    try:
        yield
    except google.GoogleAPICallError as error:
        raise _translated(error, what) from error
    except google.RetryError as error:
        raise BrokerUnavailable(f"{what}: no answer in time") from error
    except DefaultCredentialsError as error:
        raise ConfigurationError(
            [Problem(path="GOOGLE_APPLICATION_CREDENTIALS", message=_NO_CREDENTIALS)]
        ) from error
    except GoogleAuthError as error:
        raise BrokerUnavailable(f"{what}: no access token: {type(error).__name__}") from error


def _translated(error: google.GoogleAPICallError, what: str) -> BrokerUnavailable | BrokerRefused:
    message = f"{what}: {error.message or type(error).__name__}"
    for theirs, ours in _REFUSALS:
        if isinstance(error, theirs):
            return ours(message)
    return BrokerUnavailable(message)
