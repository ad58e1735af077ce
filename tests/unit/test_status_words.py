"""Proves that `status` says in words why a queue does not move, and is silent when it does."""

from __future__ import annotations

import msgspec
import pytest

from async_processor.cli.status_words import span, warnings, why
from async_processor.redis_io.queue_report import QueueReport

QUIET = QueueReport(
    queue_name="q",
    now=1000.0,
    waiting=0,
    parked=0,
    expired=0,
    in_milliseconds=0,
    oldest_deadline=None,
    leased=0,
    leases_ended=0,
    retries=0,
    retries_due=0,
    next_retry=None,
    dead_letters=0,
)


def _report(**facts: float) -> QueueReport:
    return msgspec.structs.replace(QUIET, **facts)


@pytest.mark.parametrize(
    "report", [QUIET, _report(waiting=5, leased=3), _report(waiting=5, leased=3, leases_ended=2)]
)
def test_what_is_empty_or_moves_needs_no_words(report: QueueReport) -> None:
    assert why(report, None) == ""


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (_report(waiting=5), "no daemon runs on this queue, or its gate is closed"),
        (_report(waiting=5, expired=5), "all deadlines have passed"),
        (_report(waiting=5, leased=1, leases_ended=1), "1 request was claimed by a daemon that"),
        (_report(leased=2, leases_ended=2), "2 requests were claimed by a daemon that is silent"),
        (_report(parked=3), "3 requests are parked until a gate has room"),
        (_report(retries=1, next_retry=1030.0), "1 retry not due yet, the next in 30 s"),
        (_report(retries=2, retries_due=2), "no daemon seems to run"),
    ],
)
def test_what_stands_still_is_explained(report: QueueReport, words: str) -> None:
    assert words in why(report, None)


def test_a_daemon_that_does_not_answer_is_named() -> None:
    words = why(_report(waiting=5), None, silent="http://localhost:8081")
    assert "no daemon answers at http://localhost:8081" in words


def test_the_daemon_knows_better() -> None:
    assert why(_report(waiting=5), {"why": "the queue's gate is closed"}) == (
        "the queue's gate is closed"
    )


def test_deadlines_in_milliseconds_are_warned_about() -> None:
    assert list(warnings(QUIET)) == []
    assert "3 deadlines in milliseconds" in next(warnings(_report(in_milliseconds=3)))


@pytest.mark.parametrize(
    ("seconds", "words"), [(5, "5 s"), (119, "119 s"), (600, "10 m"), (7200, "2 h"), (4e5, "5 d")]
)
def test_durations_are_said_as_people_do(seconds: float, words: str) -> None:
    assert span(seconds) == words
