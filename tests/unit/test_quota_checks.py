"""Which quotas a request may pass one after the other."""

from __future__ import annotations

from typing import Any

import pytest

from async_processor.config.load import validated

SLOTS = {"type": "redis-quota", "mode": "concurrency", "limit": 2}
STARTS = {"type": "redis-quota", "limit": 2}
URL = "redis://r:6379/0"


@pytest.mark.parametrize(
    "others",
    [
        [STARTS, STARTS],
        [SLOTS, STARTS],
        [SLOTS, SLOTS | {"prefix": "other:"}],
        [SLOTS, SLOTS | {"attribute": "team"}],
        [SLOTS, SLOTS | {"url": "redis://elsewhere:6379/0"}],
    ],
)
def test_a_request_may_pass_several_counts(others: list[Any]) -> None:
    first, second = others
    queue = {"queue_name": "q", "igw_base_url": "http://gw", "gate": first}
    pools = [{"id": "default", "gate": second}, {"id": "another", "gate": first}]
    transport = {"type": "redis-sortedset", "url": URL, "queues": [queue]}
    validated({"transport": transport, "worker_pools": pools}, {})


def test_queues_may_count_together() -> None:
    queues = [
        {"queue_name": name, "igw_base_url": "http://gw", "gate": SLOTS} for name in ("q1", "q2")
    ]
    validated({"transport": {"type": "redis-sortedset", "url": URL, "queues": queues}}, {})
