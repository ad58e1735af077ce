"""A queue's failing calls are told while they are recent and none has succeeded since."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from async_processor.settlement.decision import Category, Decision, Ending
from async_processor.settlement.trouble import MISSED_LATELY, RECENT, Trouble
from async_processor.testing.clock import ManualClock
from async_processor.transport.base import Release

REFUSED = Decision(
    outcome=Release(),
    ending=Ending.RETRIED,
    category=Category.NETWORK,
    fault="connection refused",
)
SUCCESS = Decision(outcome=Release(), ending=Ending.SUCCEEDED)
BAD_REQUEST = Decision(
    outcome=Release(), ending=Ending.FAILED, category=Category.CLIENT, fault="HTTP 400"
)
LATE = Decision(outcome=Release(), ending=Ending.EXPIRED)
NO_CALL = Decision(outcome=Release(), ending=Ending.RELEASED)


def trouble_after(*decisions: Decision) -> Trouble:
    trouble = Trouble(ManualClock(), queue_id="q")
    for decision in decisions:
        trouble.note(decision)
    return trouble


@pytest.mark.parametrize("decisions", [(), (SUCCESS,), (REFUSED, SUCCESS), (BAD_REQUEST,)])
def test_without_a_failure_there_are_no_words(decisions: tuple[Decision, ...]) -> None:
    assert trouble_after(*decisions).words() == ""


@pytest.mark.parametrize("after", [(), (NO_CALL,), (BAD_REQUEST,)])
def test_a_failure_stands_until_a_success(after: tuple[Decision, ...]) -> None:
    words = trouble_after(REFUSED, *after).words()
    assert words == "calls fail, the last 0 s ago: NETWORK_ERROR: connection refused"


async def test_an_old_failure_is_forgotten() -> None:
    clock = ManualClock()
    trouble = Trouble(clock, queue_id="q")
    trouble.note(REFUSED)
    await clock.advance(RECENT)
    assert "600 s ago" in trouble.words()
    await clock.advance(1)
    assert trouble.words() == ""


async def test_a_missed_deadline_is_told_for_a_while_also_when_others_succeed() -> None:
    clock = ManualClock()
    trouble = Trouble(clock, queue_id="q")
    assert trouble.missed() == ""
    trouble.note(LATE)
    trouble.note(SUCCESS)
    await clock.advance(MISSED_LATELY)
    assert trouble.missed() == "deadlines pass, the last 60 s ago"
    await clock.advance(1)
    assert trouble.missed() == ""
    assert trouble_after(LATE).words() == "", "that is no failing call"


def test_the_log_is_warned_of_what_the_gateway_does_wrong() -> None:
    with capture_logs() as records:
        trouble_after(REFUSED, BAD_REQUEST, SUCCESS, NO_CALL)
    (record,) = records
    assert (record["event"], record["log_level"]) == ("call_failed", "warning")
    assert (record["queue_id"], record["error"]) == ("q", "connection refused")
