"""Proves that `status` says in words why a queue does not move, and is silent when it does."""

from __future__ import annotations

import msgspec
import pytest

from async_processor.cli.daemon_status import Asked, Told, ToldProcess, ToldQueue
from async_processor.cli.status_words import notes, span, warnings, why
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
    next_lease_end=None,
    retries=0,
    retries_due=0,
    next_retry=None,
    dead_letters=0,
    stranded=0,
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
    ],
)
def test_what_stands_still_is_explained(report: QueueReport, words: str) -> None:
    assert words in why(report, None)


def test_a_daemon_that_does_not_answer_is_named() -> None:
    words = why(_report(waiting=5), None, silent="http://localhost:8081")
    assert "no daemon answers at http://localhost:8081" in words


def test_leases_of_a_daemon_that_does_not_answer_are_told_with_their_end() -> None:
    held = _report(waiting=5, leased=3, next_lease_end=1042.0)
    words = why(held, None, silent="http://localhost:8081")
    assert "3 leases stand, and no daemon answers at http://localhost:8081" in words
    assert words.endswith("go back, the first in 42 s")
    assert why(held, None) == "", "nobody was asked: it may well move"


def test_the_daemon_knows_better() -> None:
    told = ToldQueue(queue_id="q", queue_name="q", pool_name="p", why="the queue's gate is closed")
    assert why(_report(waiting=5), told) == "the queue's gate is closed"


TOLD = Asked(told=Told(ready=True, queues=()))


@pytest.mark.parametrize(
    ("report", "asked", "words"),
    [
        (QUIET, Asked(), []),
        (QUIET, Asked(fault="no daemon answers"), ["no daemon answers"]),
        (
            _report(retries=1, next_retry=1030.0),
            Asked(),
            ["all queues: 1 retry not due yet, the next in 30 s"],
        ),
        (_report(retries=2, retries_due=1), TOLD, ["all queues: 2 retries, 1 of them due"]),
        (
            _report(retries=2, retries_due=2),
            Asked(),
            ["all queues: 2 retries, 2 of them due: if that stays so, no daemon runs"],
        ),
        (
            _report(leased=3, next_lease_end=1042.0),
            Asked(),
            [
                (
                    "leased requests go back, the first in 42 s, unless their daemon still runs "
                    "(--daemon URL asks it)"
                )
            ],
        ),
        (_report(leased=3, next_lease_end=1042.0), TOLD, []),
        (
            _report(dead_letters=1),
            TOLD,
            ["all queues: 1 dead letter; async-processor dead-letter list shows them"],
        ),
    ],
)
def test_what_all_queues_share_is_told_of_none_of_them(
    report: QueueReport, asked: Asked, words: list[str]
) -> None:
    other = msgspec.structs.replace(report, queue_name="other")
    assert list(notes([report, other], asked)) == words
    assert why(report, None) == why(other, None) == ""


def test_deadlines_in_milliseconds_are_warned_about() -> None:
    assert list(warnings(QUIET)) == []
    assert "3 deadlines in milliseconds" in next(warnings(_report(in_milliseconds=3)))


@pytest.mark.parametrize(
    ("seconds", "words"), [(5, "5 s"), (119, "119 s"), (600, "10 m"), (7200, "2 h"), (4e5, "5 d")]
)
def test_durations_are_said_as_people_do(seconds: float, words: str) -> None:
    assert span(seconds) == words


def test_a_process_that_is_not_ready_is_told() -> None:
    processes = (
        ToldProcess(process=1, ready=True),
        ToldProcess(process=2, ready=False, why="it is starting"),
    )
    asked = Asked(told=Told(ready=False, queues=(), processes=processes))
    assert list(notes([QUIET], asked)) == ["process 2 of 2 is not ready: it is starting"]
