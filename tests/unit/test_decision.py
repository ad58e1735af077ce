"""What follows from an attempt: the table of the contract's section 5, row by row."""

from __future__ import annotations

import json

import pytest

from async_processor.inference.base import Answer, Failure, NoAnswer, Reply
from async_processor.settlement.decision import Category, Decision, Ending, after_attempt
from async_processor.settlement.results import Progress
from async_processor.settlement.routing import ResultRoute
from async_processor.settlement.settings import RetrySettings
from async_processor.telemetry.series import RETRY_CATEGORIES
from async_processor.transport.base import Post, Retry
from async_processor.wire import envelope as wire
from async_processor.wire.result import ErrorCode

NOW = 1_764_000_000.0
ROUTE = ResultRoute(queue_name="q", default="result-list")
BODY = (
    b'{"internal":{"retry_count":2,"request_token":"t1","x-unknown":[1]},"request_kind":"plain",'
    b'"data":{"id":"r-1","deadline":1764000100,"payload":{"b":1,"a":12345678901234567890},'
    b'"metadata":{"userid":"team-a"}}}'
)


def decide(reply: Reply, *, now: float = NOW, max_attempts: int | None = None) -> Decision:
    envelope = wire.read(BODY)
    return after_attempt(
        envelope,
        reply,
        Progress(attempts=envelope.retry_count + 1),
        now=now,
        route=ROUTE,
        settings=RetrySettings(base_delay=2.0, max_delay=60.0, max_attempts=max_attempts),
        random=lambda: 0.5,
    )


def posted(decision: Decision) -> Post:
    assert isinstance(decision.outcome, Post)
    return decision.outcome


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_2xx_is_success_and_carries_the_answer(status: int) -> None:
    decision = decide(Answer(status=status, body=b'{"ok":true}'))
    result = posted(decision).result
    assert decision.ending is Ending.SUCCEEDED
    assert (result.id, result.status_code, result.payload) == ("r-1", status, '{"ok":true}')
    assert (result.request_token, result.attempts) == ("t1", 3)
    assert result.metadata == {"userid": "team-a"}
    assert result.error_code is None


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 507, 599])
def test_transient_statuses_are_retried(status: int) -> None:
    decision = decide(Answer(status=status, body=b""))
    assert decision.ending is Ending.RETRIED
    assert isinstance(decision.outcome, Retry)
    assert decision.outcome.due_at == NOW + 12  # retry 3: [8, 16) s, drawn in the middle


def test_the_retry_keeps_everything_but_the_routing_byte_for_byte() -> None:
    decision = decide(Answer(status=503, body=b""))
    assert isinstance(decision.outcome, Retry)
    stored = decision.outcome.body
    assert b'"payload":{"b":1,"a":12345678901234567890}' in stored
    assert json.loads(stored)["internal"] == {
        "last_error": "HTTP 503",
        "retry_count": 3,
        "request_token": "t1",
        "x-unknown": [1],
        "request_queue_name": "q",
    }


@pytest.mark.parametrize("status", [301, 302, 307, 400, 404, 409, 413, 422, 501])
def test_other_statuses_are_final_and_carry_the_answer(status: int) -> None:
    decision = decide(Answer(status=status, body=b"no"))
    assert decision.ending is Ending.FAILED
    assert posted(decision).result.status_code == status
    assert posted(decision).result.payload == "no"


@pytest.mark.parametrize("status", [401, 403])
def test_refused_credentials_have_a_category_of_their_own(status: int) -> None:
    decision = decide(Answer(status=status, body=b""))
    assert (decision.ending, decision.category) == (Ending.FAILED, Category.AUTH)


@pytest.mark.parametrize(
    "failure", [f for f in Failure if f not in (Failure.TOO_LARGE, Failure.UNSENDABLE)]
)
def test_network_failures_are_retried(failure: Failure) -> None:
    assert decide(NoAnswer(failure=failure, message="gone")).ending is Ending.RETRIED


def test_every_category_of_a_retry_has_its_counter() -> None:
    answers: list[Reply] = [Answer(status=status, body=b"") for status in range(200, 1000)]
    silences: list[Reply] = [NoAnswer(failure=each, message="gone") for each in Failure]
    decisions = [decide(reply) for reply in answers + silences]
    retried = {each.category for each in decisions if each.ending is Ending.RETRIED}
    assert retried == set(RETRY_CATEGORIES)


def test_the_retry_carries_how_the_attempt_failed_on_one_short_line() -> None:
    decision = decide(
        NoAnswer(failure=Failure.REFUSED, message="connection refused:\n" + 300 * "x")
    )
    assert isinstance(decision.outcome, Retry)
    told = wire.read(decision.outcome.body).last_error
    assert told == decision.fault
    assert told.startswith("connection refused:\\nxxx")
    assert len(told) == 200


def test_a_success_has_no_fault_and_what_fails_has() -> None:
    assert decide(Answer(status=200, body=b"{}")).fault == ""
    assert decide(Answer(status=404, body=b"no")).fault == "HTTP 404"
    timed_out = decide(NoAnswer(failure=Failure.TIMEOUT, message="timed out"), now=NOW + 100)
    assert (timed_out.fault, timed_out.category) == ("timed out", Category.NETWORK)


def test_an_answer_over_its_limit_is_final() -> None:
    decision = decide(NoAnswer(failure=Failure.TOO_LARGE, message="answer over 64 MiB"))
    result = posted(decision).result
    assert decision.ending is Ending.FAILED
    assert result.error_code is ErrorCode.INFERENCE_ERROR
    assert (result.status_code, result.error_message) == (None, "answer over 64 MiB")
    assert json.loads(result.payload) == {"error": "answer over 64 MiB"}


def test_an_answer_that_came_with_the_deadline_is_carried() -> None:
    decision = decide(Answer(status=503, body=b"busy"), now=NOW + 100)
    assert decision.ending is Ending.EXPIRED
    assert posted(decision).result.status_code == 503
    assert posted(decision).result.payload == "busy"


def test_no_answer_by_the_deadline_is_deadline_exceeded() -> None:
    decision = decide(NoAnswer(failure=Failure.TIMEOUT, message="no answer"), now=NOW + 100)
    assert decision.ending is Ending.EXPIRED
    assert posted(decision).result.error_code is ErrorCode.DEADLINE_EXCEEDED


def test_a_success_after_the_deadline_is_still_a_success() -> None:
    assert decide(Answer(status=200, body=b"{}"), now=NOW + 200).ending is Ending.SUCCEEDED


def test_max_attempts_ends_the_retries_with_the_last_answer() -> None:
    decision = decide(Answer(status=503, body=b"busy"), max_attempts=3)
    assert decision.ending is Ending.FAILED
    assert posted(decision).result.status_code == 503
    assert decide(Answer(status=503, body=b"busy"), max_attempts=4).ending is Ending.RETRIED


def test_bytes_that_are_not_utf8_become_replacement_characters() -> None:
    decision = decide(Answer(status=200, body=b"caf\xe9"))
    assert posted(decision).result.payload == "caf�"
