"""What the concurrency quotas of a pool's queues promise together, and the pool cannot keep."""

from __future__ import annotations

from collections.abc import Iterator

from async_processor.admission.quota.books import keys_of
from async_processor.admission.settings import GateSettings, QuotaMode, RedisQuotaGate
from async_processor.config.gate_parts import with_inner
from async_processor.config.settings import RedisTransport, Settings
from async_processor.dispatch.settings import PoolSettings
from async_processor.errors import Problem

_Count = tuple[str, str]
"""What tells one count from another: its Redis and its keys."""


def at_once(quota: RedisQuotaGate) -> int:
    """How many requests a concurrency quota promises to run at once, at least."""
    return max(quota.limit or 0, sum(quota.limits.values()))


def quota_sums(settings: Settings) -> Iterator[Problem]:
    """Of pools whose queues have several quotas; each by itself is not looked at here."""
    for index, pool in enumerate(settings.worker_pools):
        promises = _promises(settings, pool)
        total = sum(promises.values())
        if len(promises) > 1 and total > pool.workers:
            message = (
                f"{pool.workers} are fewer than the {total} at once that the concurrency quotas of "
                f"the queues of the pool {pool.id!r} add up to"
            )
            yield Problem(path=f"worker_pools[{index}].workers", message=message)


def _promises(settings: Settings, pool: PoolSettings) -> dict[_Count, int]:
    """By count: queues may count together, and then promise no more than the larger number."""
    promises: dict[_Count, int] = {}
    for queue in settings.queues:
        quotas = _quotas(queue.gate) if queue.worker_pool_id == pool.id else []
        if quotas:
            tightest = min(quotas, key=at_once)  # a request needs room in all of its gate's quotas
            count = (tightest.redis_url(_own_redis(settings)), keys_of(tightest).group)
            promises[count] = max(promises.get(count, 0), at_once(tightest))
    return promises


def _own_redis(settings: Settings) -> str:
    broker = settings.transport
    return broker.url if isinstance(broker, RedisTransport) else ""


def _quotas(gate: GateSettings) -> list[RedisQuotaGate]:
    return [
        inner
        for _, inner in with_inner("", gate)
        if isinstance(inner, RedisQuotaGate) and inner.mode is QuotaMode.CONCURRENCY
    ]
