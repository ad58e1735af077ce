"""The statuses of several processes as one: what each has is summed up, and a queue is held back
only by what holds it back everywhere."""

from __future__ import annotations

from typing import Any

from async_processor.processes.status import merged

GATE = {"type": "redis", "value": 0.5, "threshold": 0.0, "budget": 0.5, "decision": "open"}


def status(*, why: str = "", workers: int = 2, inflight: int = 1, **queue: Any) -> dict[str, Any]:
    stand = {"backlog": 7, "oldest_deadline": 5.0, "gate": GATE, **queue}
    return {
        "queues": [
            {"queue_name": "q", "pool_name": "p", **stand, "inflight": inflight, "why": why}
        ],
        "pools": [
            {
                "pool_name": "p",
                "workers": workers,
                "inflight": inflight,
                "waiting": 0,
                "gate": GATE,
            }
        ],
    }


def test_what_each_has_is_summed_up_and_what_all_see_is_not() -> None:
    both = merged([status(inflight=1, workers=3), status(inflight=2, backlog=8)])
    (queue,), (pool,) = both["queues"], both["pools"]
    assert (queue["inflight"], queue["backlog"]) == (3, 7)
    assert (pool["workers"], pool["inflight"]) == (5, 3)


def test_what_one_does_not_know_another_may() -> None:
    both = merged([status(backlog=None), status(backlog=8)])
    assert both["queues"][0]["backlog"] == 8


def test_budgets_are_parts_of_one() -> None:
    assert merged([status(), status()])["queues"][0]["gate"]["budget"] == 1.0
    closed = {**GATE, "budget": 0.0, "decision": "closed"}
    assert merged([status(gate=closed), status()])["queues"][0]["gate"]["decision"] == "open"
    assert merged([status(gate=closed)] * 2)["queues"][0]["gate"]["decision"] == "closed"


def test_a_queue_that_moves_in_one_process_moves() -> None:
    assert merged([status(why="busy"), status()])["queues"][0]["why"] == ""
    assert merged([status(why="busy"), status(why="busy")])["queues"][0]["why"] == "busy"
    both = merged([status(why="busy"), status(why="closed")])
    assert both["queues"][0]["why"] == "busy; closed"


def test_who_has_no_workers_for_a_queue_does_not_count() -> None:
    both = merged([status(workers=0, why=""), status(why="closed")])
    assert both["queues"][0]["why"] == "closed"


def test_with_nobody_there_is_nothing() -> None:
    assert merged([]) == {"queues": [], "pools": []}
