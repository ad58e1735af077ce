"""The statuses of all processes made one (pure).

What a process has is summed up; what lies in the broker, and what a gate reads, is the same for
all, and the first one's counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

Part = Mapping[str, Any]

_OWN: Final = ("inflight", "waiting", "workers")
"""What each process has for itself."""


def merged(statuses: Sequence[Part]) -> Part:
    """Queues and pools; with no status at all there are none."""
    idle = [_idle_pools(status) for status in statuses]
    queues: dict[str, list[Part]] = {}
    pools: dict[str, list[Part]] = {}
    for status, without_workers in zip(statuses, idle, strict=True):
        for queue in status["queues"]:
            # Who has no workers for it does not hold it back.
            why = None if queue["pool_name"] in without_workers else queue["why"]
            queues.setdefault(queue["queue_name"], []).append({**queue, "why": why})
        for pool in status["pools"]:
            pools.setdefault(pool["pool_name"], []).append(pool)
    return {
        "queues": [_merged(parts) | {"why": _why(parts)} for parts in queues.values()],
        "pools": [_merged(parts) for parts in pools.values()],
    }


def _idle_pools(status: Part) -> set[str]:
    return {pool["pool_name"] for pool in status["pools"] if not pool["workers"]}


def _merged(parts: Sequence[Part]) -> dict[str, Any]:
    sums = {key: sum(part[key] for part in parts) for key in _OWN if key in parts[0]}
    known = {
        key: next((part[key] for part in parts if part[key] is not None), None)
        for key in parts[0]
        if key not in _OWN
    }
    return {key: (known | sums)[key] for key in parts[0]} | {"gate": _gate(parts)}


def _gate(parts: Sequence[Part]) -> Part:
    """Of a budget each process has its part, and the whole of one without a limit."""
    budget = round(min(1.0, sum(part["gate"]["budget"] for part in parts)), 9)
    decision = "closed" if budget <= 0 else "open"
    return {**parts[0]["gate"], "budget": budget, "decision": decision}


def _why(parts: Sequence[Part]) -> str:
    """A queue moves if it moves in one process; else all that holds it back, once each."""
    said = [part["why"] for part in parts if part["why"] is not None]
    return "" if not all(said) else "; ".join(dict.fromkeys(said))
