"""The border: what aiohttp, TLS and the operating system raise becomes one of our failures.

Every exception class of aiohttp's client is named here, so that a new one shows in the tests
instead of falling to whatever its parent means.
"""

from __future__ import annotations

import ssl
from typing import Final

import aiohttp
from aiohttp import client_exceptions, http_exceptions

from async_processor.inference.answer_body import AnswerBroken, AnswerTooLarge
from async_processor.inference.base import Failure, NoAnswer
from async_processor.telemetry.masking import mask_url, one_line

_LONGEST_MESSAGE: Final = 300

FOREIGN: Final = (
    aiohttp.ClientError,
    http_exceptions.HttpProcessingError,
    OSError,  # TimeoutError and ssl.SSLError are ones
    ValueError,  # a URL or a header that cannot be written
    AnswerBroken,
    AnswerTooLarge,
)
"""All that an attempt may raise besides being cancelled."""

FAILURES: Final[dict[type[BaseException], Failure]] = {
    # Connecting.
    aiohttp.ClientConnectorError: Failure.REFUSED,
    aiohttp.ClientProxyConnectionError: Failure.REFUSED,
    client_exceptions.UnixClientConnectorError: Failure.REFUSED,
    aiohttp.ClientHttpProxyError: Failure.REFUSED,
    aiohttp.ClientConnectorDNSError: Failure.DNS,
    ConnectionRefusedError: Failure.REFUSED,
    # TLS.
    aiohttp.ClientSSLError: Failure.TLS,
    aiohttp.ClientConnectorSSLError: Failure.TLS,
    aiohttp.ClientConnectorCertificateError: Failure.TLS,
    aiohttp.ServerFingerprintMismatch: Failure.TLS,
    ssl.SSLError: Failure.TLS,
    # Losing a connection; a kept one that the server closes while we write is among these.
    aiohttp.ClientError: Failure.RESET,
    aiohttp.ClientConnectionError: Failure.RESET,
    aiohttp.ClientConnectionResetError: Failure.RESET,
    aiohttp.ClientOSError: Failure.RESET,
    aiohttp.ServerConnectionError: Failure.RESET,
    aiohttp.ServerDisconnectedError: Failure.RESET,
    client_exceptions.UploadAbortedError: Failure.RESET,
    OSError: Failure.RESET,
    # Time.
    aiohttp.ServerTimeoutError: Failure.TIMEOUT,
    aiohttp.ConnectionTimeoutError: Failure.TIMEOUT,
    aiohttp.SocketTimeoutError: Failure.TIMEOUT,
    TimeoutError: Failure.TIMEOUT,
    # Answers.
    aiohttp.ClientPayloadError: Failure.BROKEN_BODY,
    aiohttp.ClientResponseError: Failure.BROKEN_BODY,
    aiohttp.ContentTypeError: Failure.BROKEN_BODY,
    aiohttp.TooManyRedirects: Failure.BROKEN_BODY,
    aiohttp.WSServerHandshakeError: Failure.BROKEN_BODY,
    http_exceptions.HttpProcessingError: Failure.BROKEN_BODY,
    AnswerBroken: Failure.BROKEN_BODY,
    AnswerTooLarge: Failure.TOO_LARGE,
    # Calls that no server will ever see.
    aiohttp.InvalidURL: Failure.UNSENDABLE,
    aiohttp.InvalidUrlClientError: Failure.UNSENDABLE,
    aiohttp.RedirectClientError: Failure.UNSENDABLE,
    aiohttp.NonHttpUrlClientError: Failure.UNSENDABLE,
    aiohttp.InvalidUrlRedirectClientError: Failure.UNSENDABLE,
    aiohttp.NonHttpUrlRedirectClientError: Failure.UNSENDABLE,
    ValueError: Failure.UNSENDABLE,
}


def failure_of(error: BaseException) -> Failure:
    """The failure that an exception of `FOREIGN` means."""
    if isinstance(error, aiohttp.ClientConnectorError) and isinstance(error.os_error, TimeoutError):
        return Failure.TIMEOUT
    if isinstance(error.__cause__, ssl.SSLError):
        return Failure.TLS
    return next(FAILURES[kind] for kind in type(error).__mro__ if kind in FAILURES)


def no_answer(error: BaseException) -> NoAnswer:
    """The reply for an attempt that raised; says what happened, without secrets."""
    failure = failure_of(error)
    detail = one_line(mask_url(_detail(error)))[:_LONGEST_MESSAGE]
    return NoAnswer(failure=failure, message=f"{failure}: {detail}" if detail else str(failure))


def _detail(error: BaseException) -> str:
    """In words; an answer's error tells its fault alone, since its text repeats the whole URL."""
    if isinstance(error, (aiohttp.ClientResponseError, http_exceptions.HttpProcessingError)):
        return error.message
    return str(error)
