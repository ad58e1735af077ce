"""Every exception that aiohttp's client knows has a place in the table of failures.

A new version of aiohttp that adds one fails here, before it surprises in production.
"""

from __future__ import annotations

import inspect
import ssl

import aiohttp
import pytest
from aiohttp import client_exceptions, http_exceptions

from async_processor.inference.base import Failure
from async_processor.inference.failures import FAILURES, FOREIGN, failure_of, no_answer

WEBSOCKETS_ONLY = {client_exceptions.WSMessageTypeError}


def exceptions_of(module: object) -> set[type[BaseException]]:
    return {
        kind
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, BaseException) and kind.__module__.startswith("aiohttp.")
    }


CLIENT = exceptions_of(client_exceptions) - WEBSOCKETS_ONLY
PARSER = exceptions_of(http_exceptions)


def test_the_enumeration_finds_something() -> None:
    assert aiohttp.ServerDisconnectedError in CLIENT
    assert len(CLIENT) > 20
    assert len(PARSER) > 8


@pytest.mark.parametrize("kind", sorted(CLIENT, key=str))
def test_each_client_exception_is_named_in_the_table(kind: type[BaseException]) -> None:
    assert kind in FAILURES


def test_all_that_aiohttp_exports_is_caught_at_the_border() -> None:
    for kind in (exceptions_of(aiohttp) & CLIENT) | PARSER:
        assert issubclass(kind, FOREIGN)


@pytest.mark.parametrize("kind", sorted(PARSER, key=str))
def test_each_parser_exception_is_a_broken_answer(kind: type[BaseException]) -> None:
    assert failure_of(kind.__new__(kind)) is Failure.BROKEN_BODY


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (TimeoutError(), Failure.TIMEOUT),
        (ConnectionResetError(104, "reset"), Failure.RESET),
        (BrokenPipeError(), Failure.RESET),
        (ssl.SSLError(1, "alert"), Failure.TLS),
        (UnicodeError("label too long"), Failure.UNSENDABLE),
        (aiohttp.ServerDisconnectedError(), Failure.RESET),
    ],
)
def test_the_systems_own(error: Exception, failure: Failure) -> None:
    assert failure_of(error) is failure


def test_a_tls_error_is_seen_through_its_wrapping() -> None:
    wrapped = aiohttp.ClientOSError(1, "alert")
    wrapped.__cause__ = ssl.SSLError(1, "alert")
    assert failure_of(wrapped) is Failure.TLS


def test_the_message_is_short_on_one_line_and_without_secrets() -> None:
    reply = no_answer(ValueError("bad http://u:hunter2@h/\r\n" + "x" * 1000))
    assert "hunter2" not in reply.message
    assert "\n" not in reply.message
    assert "\r" not in reply.message
    assert len(reply.message) < 400
