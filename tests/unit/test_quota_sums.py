"""Quotas of several queues that together promise more than their pool has."""

from __future__ import annotations

import pytest

from async_processor.config.load import validated, warnings

A = {"type": "redis-quota", "mode": "concurrency", "missing_attribute": "allow"}
LIMIT_2 = A | {"limit": 2}
LIMIT_6 = A | {"limit": 6}


def told(*gates: object, workers: int = 8, pools: tuple[str, ...] = ()) -> list[str]:
    """The warnings about queues with these gates, each in a pool of that name."""
    queues = [
        {
            "queue_name": f"q{number}",
            "igw_base_url": "http://gw",
            "gate": gate,
            "worker_pool_id": (pools or ("p",) * len(gates))[number],
        }
        for number, gate in enumerate(gates)
    ]
    settings = validated(
        {
            "transport": {"type": "redis-sortedset", "url": "redis://r:6379/0", "queues": queues},
            "worker_pools": [
                {"id": name, "workers": workers} for name in sorted({*pools} or {"p"})
            ],
        },
        {},
    )
    return [str(warning) for warning in warnings(settings)]


def tenants(attribute: str, **limits: int) -> dict[str, object]:
    return A | {"attribute": attribute, "limits": limits | {"*": 1}}


def too_many(total: int, workers: int = 8) -> list[str]:
    promised = (
        f"{total} at once that the concurrency quotas of the queues of the pool 'p' add up to"
    )
    return [f"worker_pools[0].workers: {workers} are fewer than the {promised}"]


def test_the_quotas_of_a_pools_queues_are_added_up() -> None:
    first, second = tenants("team", a=2, b=2), tenants("user", c=4)
    assert told(first, second, workers=10) == []
    assert told(first, second, workers=9) == too_many(10, 9)


def test_each_pool_counts_for_itself() -> None:
    assert told(LIMIT_6, LIMIT_6 | {"prefix": "other:"}, pools=("p", "o")) == []


@pytest.mark.parametrize(
    ("url", "total"),
    [(None, 0), ("redis://r:6379/0", 0), ("redis://elsewhere", 12)],
)
def test_queues_that_count_together_promise_it_once(url: str | None, total: int) -> None:
    assert told(LIMIT_6, LIMIT_6 | {"url": url} if url else LIMIT_6) == (
        too_many(total) if total else []
    )


def test_of_quotas_that_a_request_needs_all_the_tightest_counts() -> None:
    both = {"type": "composite", "gates": [LIMIT_2 | {"attribute": "team"}, LIMIT_6]}
    other = LIMIT_6 | {"prefix": "other:"}
    assert told(both, other) == []
    assert told(both, other, workers=7) == too_many(8, 7)


def test_rates_promise_nothing_at_once_and_reserved_slots_do() -> None:
    other = LIMIT_6 | {"prefix": "other:"}
    assert told(LIMIT_6 | {"mode": "rate-limit"}, other) == []
    assert told(LIMIT_6 | {"gating_mode": "classifying"}, other) == too_many(12)


def test_one_quota_that_covers_more_than_there_is_is_told_as_well_when_it_only_marks() -> None:
    assert told(LIMIT_6 | {"gating_mode": "classifying"}, workers=5) == [
        "transport.queues[0].gate.limit: 6 at once can't be reached: the pool 'p' has 5 workers"
    ]
