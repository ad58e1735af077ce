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
        (execution("x", 1), [incident("y", 2, 2)], False),
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


def of_one(calls: list[Execution], *incidents: Incident) -> int:
    """How many executions of one request have no reason."""
    ledger = Ledger(incidents=list(incidents))
    ledger.executions["r"] = calls
    return len(ledger.unexplained())


def test_one_incident_explains_one_repetition_of_a_request() -> None:
    calls = [execution("x", 0.1 + n / 20) for n in range(10)]
    assert of_one(calls, incident(EVERYBODY, 0, 1)) == 8


def test_a_death_elsewhere_explains_nothing() -> None:
    """A replica that starts anew takes what another still runs."""
    calls = [execution("a", 1), execution("b", 10)]
    death = Incident(fault="SIGKILL", touches="b", began=5, ended=6, deaths=[5.5])
    assert of_one(calls, death) == 1


def test_each_death_of_a_fault_counts() -> None:
    calls = [execution("x", 1), execution("x", 5), execution("x", 9), execution("y", 13)]
    fault = Incident(fault="SIGKILL after claim", touches="x", began=2, ended=20, deaths=[2, 6])
    assert of_one(calls, fault) == 1
    assert of_one(calls[:3], fault) == 0


def test_a_death_long_after_the_call_explains_nothing() -> None:
    calls = [execution("x", 1), execution("y", 40)]
    fault = Incident(fault="f", touches="x", began=0, ended=30, deaths=[30])
    assert of_one(calls, fault) == 1


def test_reasons_are_dealt_out_so_that_most_have_one() -> None:
    """What touches everybody is left for the call that has no other."""
    calls = [execution("x", 1), execution("y", 3), execution("z", 5)]
    everybody, one = incident(EVERYBODY, 2, 4), incident("x", 2, 2)
    assert of_one(calls, everybody, one) == 0
    assert of_one(calls, one, everybody) == 0


def test_what_the_server_spoiled_may_run_again() -> None:
    spoiled, cut = execution("x", 1, status=None), execution("x", 3, status=None)
    spoiled.in_bad_days = True
    assert of_one([spoiled, cut, execution("x", 5)]) == 1


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
