"""The arithmetic of the fault harness: what it must find, it finds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest

from async_processor.testing.chaos.ledger import EVERYBODY, Execution, Incident, Ledger
from async_processor.testing.chaos.verdict import Verdict, judge


def execution(replica: str, began: float, *, status: int | None = 200) -> Execution:
    return Execution(request_id="r", replica=replica, began=began, ended=began + 1, status=status)


def incident(touches: str, began: float, ended: float) -> Incident:
    return Incident(fault="f", touches=touches, began=began, ended=ended)


def judged(kinds: Mapping[str, Sequence[str]], *, submitted: Sequence[str] = ("a", "b")) -> Verdict:
    return judge("t", submitted, kinds, dict.fromkeys(kinds, 0.0), Ledger())


def test_one_result_each_is_no_problem() -> None:
    assert not judged({"a": ["200"], "b": ["DEADLINE_EXCEEDED"]}).problems


@pytest.mark.parametrize(
    ("kinds", "problem"),
    [
        ({"a": ["200"]}, "lost: 1 (b)"),
        ({"a": ["200"], "b": ["200", "200"]}, "two results: 1 (b)"),
        ({"a": ["200"], "b": ["200"], "c": ["200"]}, "results of nobody's request: 1 (c)"),
    ],
)
def test_what_is_lost_doubled_or_strange_is_found(
    kinds: Mapping[str, Sequence[str]], problem: str
) -> None:
    assert judged(kinds).problems == [problem]


@pytest.mark.parametrize(
    ("first", "incidents", "explained"),
    [
        (execution("x", 1), [], False),
        (execution("x", 1, status=503), [], True),
        (execution("x", 1), [incident("x", 2, 2)], True),
        (execution("x", 1), [incident("y", 2, 2)], True),
        (execution("x", 1), [incident("z", 2, 2)], False),
        (execution("x", 1), [incident(EVERYBODY, 2, math.inf)], True),
        (execution("x", 1), [incident("x", -2, -1)], False),
        (execution("x", 1), [incident("x", 0, 0.5)], True),
        (execution("x", 1), [incident("x", 6, 7)], False),
        (execution("x", 1), [incident("x", 0, 3)], True),
    ],
)
def test_a_second_execution_needs_a_reason(
    first: Execution, incidents: list[Incident], explained: bool
) -> None:
    """The second is made by y and begins at 5."""
    ledger = Ledger(incidents=incidents)
    ledger.executions["r"] = [first, execution("y", 5)]
    assert bool(ledger.unexplained()) is not explained


def test_recovery_ends_with_the_last_result_of_what_was_struck() -> None:
    ledger = Ledger()
    with ledger.execution("a", "x"), ledger.execution("b", "y"), ledger.incident("f", "x"):
        pass
    (struck,) = ledger.incidents
    assert ledger.struck([struck]) == {"a"}

    verdict = judge(
        "t",
        ("a", "b"),
        {"a": ["200"], "b": ["200"]},
        {"a": struck.ended + 2, "b": struck.ended + 9},
        ledger,
    )

    assert [round(seconds) for seconds in verdict.recoveries] == [2]
    (share,) = verdict.shares
    assert (share.requests, share.results, share.lost) == (1, 1, 0)
