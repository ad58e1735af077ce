"""What ends a request before anything is spent on it, and in which order the reasons count."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from async_processor.settlement.decision import Decision, Ending
from async_processor.settlement.routing import MAILBOX_LIFETIME, ResultRoute
from async_processor.settlement.triage import Triage
from async_processor.transport.base import Bury, Delivery, Post, Release
from async_processor.wire import envelope as wire
from async_processor.wire.names import reserved
from async_processor.wire.result import ErrorCode

NOW = 1_764_000_000.0
TOKEN = "0" * 32


def route(**changes: Any) -> ResultRoute:
    fields: dict[str, Any] = {
        "queue_name": "q",
        "default": "result-list",
        "reserved": reserved({"q", "jobs{llm}", "retry-sortedset", "dead-letter-list"}),
    }
    return ResultRoute(**{**fields, **changes})


def triage(**changes: Any) -> Triage:
    return Triage(route=route(**changes), max_deliveries=5, payload_limit=100)


def message(internal: dict[str, Any] | None = None, **data: Any) -> bytes:
    request = {"id": "r-1", "deadline": NOW + 60, "payload": {"model": "m"}, **data}
    routing = {"request_token": TOKEN, **(internal or {})}
    return json.dumps({"internal": routing, "request_kind": "plain", "data": request}).encode()


def delivery(body: bytes, *, deliveries: int = 0, score: float = NOW + 60) -> Delivery:
    read: wire.Envelope | wire.InvalidMessage
    try:
        read = wire.read(body)
    except wire.InvalidMessage as error:
        read = error
    return Delivery(
        queue_name="q",
        token="claim-1",
        body=body,
        score=score,
        deliveries=deliveries,
        claimed_at=NOW,
        message=read,
    )


def examine(given: Delivery, *, rules: Triage | None = None, **at: Any) -> Decision | None:
    at = {"now": NOW, "cancelled": False, **at}
    return (rules or triage()).examine(given, **at)


def code(decision: Decision | None) -> ErrorCode | None:
    assert decision is not None
    post = decision.outcome.post if isinstance(decision.outcome, Bury) else decision.outcome
    assert isinstance(post, Post)
    return post.result.error_code


def test_a_good_message_goes_on() -> None:
    assert examine(delivery(message())) is None


def test_an_unreadable_message_without_an_id_is_buried_without_a_result() -> None:
    decision = examine(delivery(b"null"))
    assert decision is not None
    assert decision.ending is Ending.INVALID
    assert isinstance(decision.outcome, Bury)
    assert decision.outcome.post is None
    assert decision.outcome.reason


def test_an_invalid_message_with_an_id_is_buried_and_answered() -> None:
    decision = examine(delivery(message(deadline="soon")))
    assert decision is not None
    assert isinstance(decision.outcome, Bury)
    assert decision.outcome.post is not None
    result = decision.outcome.post.result
    assert (result.id, result.error_code) == ("r-1", ErrorCode.INVALID_REQUEST)
    assert "deadline" in str(result.error_message)
    assert "soon" in str(result.error_message)


@pytest.mark.parametrize(
    "name",
    [
        "q",
        "retry-sortedset",
        "dead-letter-list",
        "{q}:claims",
        "quota:a",
        "request-x",
        "jobs{llm}:leases",
    ],
)
def test_a_message_may_not_send_its_result_into_the_machinery(name: str) -> None:
    decision = examine(delivery(message({"result_queue_name": name})))
    assert code(decision) is ErrorCode.INVALID_REQUEST
    assert decision is not None
    assert isinstance(decision.outcome, Bury)
    assert decision.outcome.post is not None
    assert decision.outcome.post.result_queue == "result-list"


def test_a_message_names_its_result_queue_within_the_allowed_patterns() -> None:
    rules = triage(allowed=("team-a-*",))
    assert examine(delivery(message({"result_queue_name": "team-a-results"})), rules=rules) is None
    refused = examine(delivery(message({"result_queue_name": "team-b-results"})), rules=rules)
    assert code(refused) is ErrorCode.INVALID_REQUEST


def test_a_message_may_name_the_result_queue_that_is_configured_whatever_it_is() -> None:
    rules = triage(default="{llm}:results")
    assert examine(delivery(message({"result_queue_name": "{llm}:results"})), rules=rules) is None


def test_a_mailbox_is_allowed_above_all_patterns_and_expires() -> None:
    mailbox = f"request-result:r-1:{TOKEN}"
    rules = triage(allowed=())
    given = delivery(message({"result_queue_name": mailbox}))
    assert examine(given, rules=rules) is None
    cancelled = examine(given, rules=rules, cancelled=True)
    assert cancelled is not None
    assert isinstance(cancelled.outcome, Post)
    assert cancelled.outcome.result_queue == mailbox
    assert cancelled.outcome.expires_after == MAILBOX_LIFETIME


def test_somebody_elses_mailbox_is_refused() -> None:
    given = delivery(message({"result_queue_name": f"request-result:r-2:{TOKEN}"}))
    assert code(examine(given)) is ErrorCode.INVALID_REQUEST


def test_a_mailbox_that_the_queue_would_override_is_refused_with_a_sentence() -> None:
    given = delivery(message({"result_queue_name": f"request-result:r-1:{TOKEN}"}))
    decision = examine(given, rules=triage(own="team-results"))
    assert code(decision) is ErrorCode.INVALID_REQUEST
    assert decision is not None
    assert isinstance(decision.outcome, Bury)
    assert "mailbox" in decision.outcome.reason


def test_the_queues_own_result_queue_beats_the_messages() -> None:
    given = delivery(message({"result_queue_name": "elsewhere"}))
    decision = examine(given, rules=triage(own="team-results", lifetime=60.0), cancelled=True)
    assert decision is not None
    assert isinstance(decision.outcome, Post)
    assert (decision.outcome.result_queue, decision.outcome.expires_after) == ("team-results", 60)


def test_cancellation_wins_over_expiry() -> None:
    given = delivery(message())
    assert code(examine(given, now=NOW + 61, cancelled=True)) is ErrorCode.CANCELLED
    assert code(examine(given, now=NOW + 61)) is ErrorCode.DEADLINE_EXCEEDED


def test_the_deadline_itself_is_late() -> None:
    assert examine(delivery(message()), now=NOW + 59.9) is None
    assert code(examine(delivery(message()), now=NOW + 60)) is ErrorCode.DEADLINE_EXCEEDED


def test_what_was_delivered_too_often_is_buried_with_a_result() -> None:
    assert examine(delivery(message(), deliveries=4)) is None
    decision = examine(delivery(message(), deliveries=5))
    assert code(decision) is ErrorCode.MAX_DELIVERIES
    assert decision is not None
    assert isinstance(decision.outcome, Bury)


def test_a_payload_over_the_limit_is_refused() -> None:
    decision = examine(delivery(message(payload={"prompt": "x" * 200})))
    assert code(decision) is ErrorCode.INVALID_REQUEST


def test_what_was_found_early_goes_back_under_its_own_deadline() -> None:
    given = delivery(message({"enqueue_seq": 2}), score=0.0)
    decision = triage().examine_expired(given, now=NOW, cancelled=False)
    assert isinstance(decision.outcome, Release)
    assert decision.outcome.score == NOW + 60 + 2 / 2097152


def test_the_reasons_that_examples_look_for_are_found() -> None:
    """Those of the help and of the guides, as `dead-letter --reason` compares them."""
    buried = [
        examine(delivery(b"{")),
        examine(delivery(message(), deliveries=5)),
        examine(delivery(message(payload={"prompt": "x" * 100}))),
    ]
    reasons = [each.outcome.reason for each in buried if each and isinstance(each.outcome, Bury)]
    pages = ("docs/limits.md", "docs/operations.md", "async_processor/cli/dead_letter.py")
    for page in pages:
        text = (Path(__file__).parents[2] / page).read_text()
        examples = re.findall(r"dead-letter \w+ .*--reason (\w+)", text)
        assert examples
        for example in examples:
            assert any(example.lower() in reason.lower() for reason in reasons), (page, example)
