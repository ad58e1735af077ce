"""Every exception that redis-py knows has a meaning here; a new one fails before it surprises."""

from __future__ import annotations

import inspect
import ssl

import pytest
from redis import exceptions

from async_processor.errors import AsyncProcessorError, BrokerRefused, BrokerUnavailable
from async_processor.redis_io.errors import (
    FOREIGN,
    AccessDenied,
    AnswerLost,
    ScriptMissing,
    from_answer,
    from_connecting,
    from_talking,
)

NEVER_RAISED_BY_US = {
    "ChildDeadlockedError",  # forking
    "IncorrectPolicyType",  # policies of cluster commands that we do not send
}


def known_exceptions() -> list[type[Exception]]:
    return [
        kind
        for _, kind in inspect.getmembers(exceptions, inspect.isclass)
        if issubclass(kind, Exception) and kind.__module__ == exceptions.__name__
    ]


@pytest.mark.parametrize("kind", known_exceptions())
def test_every_exception_of_redis_py_is_caught_at_the_border(kind: type[Exception]) -> None:
    assert issubclass(kind, FOREIGN) or kind.__name__ in NEVER_RAISED_BY_US


@pytest.mark.parametrize(
    ("answer", "means"),
    [
        ("LOADING Redis is loading the dataset in memory", BrokerUnavailable),
        ("READONLY You can't write against a read only replica.", BrokerUnavailable),
        ("MASTERDOWN Link with MASTER is down", BrokerUnavailable),
        ("CLUSTERDOWN The cluster is down", BrokerUnavailable),
        ("TRYAGAIN Multiple keys request during rehashing of slot", BrokerUnavailable),
        ("OOM command not allowed when used memory > 'maxmemory'.", BrokerUnavailable),
        ("ERR Error running script: @user_script:5: -OOM command not allowed", BrokerUnavailable),
        ("BUSY Redis is busy running a script.", BrokerUnavailable),
        ("MISCONF Redis is configured to save RDB snapshots", BrokerUnavailable),
        ("NOSCRIPT No matching script. Please use EVAL.", ScriptMissing),
        ("NOPERM User limited has no permissions", AccessDenied),
        ("NOAUTH Authentication required.", AccessDenied),
        ("WRONGPASS invalid username-password pair", AccessDenied),
        ("WRONGTYPE Operation against a key", BrokerRefused),
        ("ERR unknown command 'BUSYBODY'", BrokerRefused),
        ("Protocol error: invalid bulk length", AnswerLost),
        ("ERR Protocol error: invalid bulk length", AnswerLost),
        ("CROSSSLOT Keys in request don't hash to the same slot", BrokerRefused),
    ],
)
def test_what_the_server_answers(answer: str, means: type[AsyncProcessorError]) -> None:
    assert type(from_answer(exceptions.ResponseError(answer))) is means


def test_an_answer_that_never_came_may_stand_for_an_executed_command() -> None:
    for error in (exceptions.ConnectionError("gone"), exceptions.TimeoutError(), OSError("gone")):
        assert type(from_talking(error, "host:1")) is AnswerLost
    assert type(from_talking(exceptions.ReadOnlyError("READONLY"), "host:1")) is BrokerUnavailable


def test_a_connection_that_failed_has_executed_nothing() -> None:
    error = from_connecting(exceptions.ConnectionError("refused"), "host:1")
    assert type(error) is BrokerUnavailable
    assert "host:1" in str(error)
    assert type(from_connecting(exceptions.AuthenticationError("x"), "host:1")) is AccessDenied


def test_a_certificate_that_is_not_trusted_will_not_become_so_by_waiting() -> None:
    error = exceptions.ConnectionError("TLS failed")
    error.__context__ = ssl.SSLCertVerificationError("self-signed certificate")
    assert type(from_connecting(error, "host:1")) is AccessDenied
