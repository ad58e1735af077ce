"""Concurrency quotas that a request would need two slots of: it would wait for itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from async_processor.admission.quota.books import keys_of
from async_processor.admission.settings import QuotaMode, RedisQuotaGate
from async_processor.config.document import gates_of, mapping, pools, queues
from async_processor.errors import Problem

_Count = tuple[str, str]
"""What tells one count from another: its Redis and its keys."""
_Placed = tuple[str, _Count]


def repeated_slots(document: Mapping[str, Any]) -> Iterator[Problem]:
    """Of the gates on the way of each queue's requests, those that count again what one before
    them has counted; each is told once."""
    own_redis = str(mapping(document.get("transport")).get("url", ""))
    pool_slots = {
        str(pool.get("id", "default")): list(_slots(path, pool, own_redis))
        for path, pool in pools(document)
    }
    told: set[str] = set()
    for path, queue in queues(document):
        of_pool = pool_slots.get(str(queue.get("worker_pool_id", "default")), ())
        yield from _repeated([*of_pool, *_slots(path, queue, own_redis)], told)


def _repeated(way: list[_Placed], told: set[str]) -> Iterator[Problem]:
    first: dict[_Count, str] = {}
    for path, count in way:
        if first.setdefault(count, path) != path and path not in told:
            told.add(path)
            message = (
                f"counts again what {first[count]} counts, so that a request would wait for its "
                "own slot: leave one of them out, or give it another prefix"
            )
            yield Problem(path=path, message=message)


def _slots(path: str, owner: Mapping[str, Any], own_redis: str) -> Iterator[_Placed]:
    for gate_path, gate in gates_of(path, owner):
        if gate.get("type") != "redis-quota":
            continue
        try:
            quota = RedisQuotaGate.model_validate(gate)
        except ValidationError:
            continue  # told already
        if quota.mode is QuotaMode.CONCURRENCY:
            yield gate_path, (quota.redis_url(own_redis), keys_of(quota).group)
