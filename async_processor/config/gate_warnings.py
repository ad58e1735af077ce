"""What a gate's settings may say and probably do not mean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Final

from async_processor.admission.pool_budget import closing_point
from async_processor.admission.settings import (
    GateSettings,
    GatingMode,
    LocalMaxConcurrencyGate,
    PrometheusBudgetGate,
    PrometheusSaturationGate,
    QuotaMode,
    RedisLeasedRateGate,
    RedisQuotaGate,
    TierPriorityAdmissionGate,
    WaitOnRefuseGate,
)
from async_processor.config.gate_parts import with_inner
from async_processor.config.quota_sums import at_once, quota_sums
from async_processor.config.settings import Settings
from async_processor.dispatch.settings import PoolSettings
from async_processor.errors import Problem

_WORDS_FOR_MISSING: Final = ("allow", "refuse")
_Placed = tuple[str, GateSettings, PoolSettings]


def gate_warnings(settings: Settings) -> Iterator[Problem]:
    """Of every gate, also those that others are made of."""
    yield from quota_sums(settings)
    yield from _waits_in_shared_pools(settings)
    for path, gate, pool in _gates(settings):
        yield from _needless_sharing(path, gate)
        match gate:
            case LocalMaxConcurrencyGate(limit=limit) if limit > pool.workers:
                message = (
                    f"{limit} can't be reached: the pool {pool.id!r} has {pool.workers} workers"
                )
                yield Problem(path=f"{path}.limit", message=message)
            case PrometheusSaturationGate(fallback=fallback) if fallback < gate.threshold:
                message = (
                    f"{fallback:g} leaves the gate open while Prometheus cannot be read; "
                    "1.0 would close it"
                )
                yield Problem(path=f"{path}.fallback", message=message)
            case PrometheusBudgetGate() if closing_point(gate) > pool.workers:
                message = (
                    f"closes at {closing_point(gate):g} requests per ready pod, which the "
                    f"{pool.workers} workers of the pool {pool.id!r} can't reach by themselves: "
                    "better what a pod really takes"
                )
                yield Problem(path=f"{path}.max_concurrency", message=message)
            case RedisQuotaGate():
                yield from _quota_warnings(path, gate, pool)
            case _:
                pass


def _waits_in_shared_pools(settings: Settings) -> Iterator[Problem]:
    queues_of = Counter(queue.worker_pool_id for queue in settings.queues)
    for index, queue in enumerate(settings.queues):
        gates = with_inner(f"transport.queues[{index}].gate", queue.gate)
        path = next((path for path, gate in gates if _waits(gate)), None)
        if path is not None and queues_of[queue.worker_pool_id] > 1:
            message = (
                "requests that wait at it keep their workers, all of the pool "
                f"{queue.worker_pool_id!r} maybe, from the pool's other queues: better a pool of "
                "its own, or the gate at the pool"
            )
            yield Problem(path=path, message=message)


def _waits(gate: GateSettings) -> bool:
    """Whether it lets requests wait in memory."""
    match gate:
        case LocalMaxConcurrencyGate(gating_mode=mode):
            return mode is GatingMode.BLOCKING
        case _:
            return isinstance(gate, WaitOnRefuseGate | TierPriorityAdmissionGate)


def _needless_sharing(path: str, gate: GateSettings) -> Iterator[Problem]:
    if gate.shared and isinstance(gate, RedisLeasedRateGate | RedisQuotaGate):
        message = "true changes nothing: all replicas count together in Redis already"
        yield Problem(path=f"{path}.shared", message=message)


def _quota_warnings(path: str, gate: RedisQuotaGate, pool: PoolSettings) -> Iterator[Problem]:
    if "missing_attribute" not in gate.model_fields_set:
        message = (
            f"requests without metadata {gate.attribute!r} pass uncounted; "
            "refuse, or a tenant to count them under, would limit them"
        )
        yield Problem(path=f"{path}.missing_attribute", message=message)
    near = get_close_matches(gate.missing_attribute, _WORDS_FOR_MISSING, n=1)
    if near and gate.missing_attribute not in (*_WORDS_FOR_MISSING, *gate.limits):
        message = f"{gate.missing_attribute!r} is taken for a tenant; did you mean {near[0]!r}?"
        yield Problem(path=f"{path}.missing_attribute", message=message)
    if gate.mode is QuotaMode.CONCURRENCY and at_once(gate) > pool.workers:
        message = (
            f"{at_once(gate)} at once can't be reached: "
            f"the pool {pool.id!r} has {pool.workers} workers"
        )
        yield Problem(path=f"{path}.{'limits' if gate.limits else 'limit'}", message=message)
    if gate.gating_mode is GatingMode.CLASSIFYING:
        return
    if gate.limit is None and "*" not in gate.limits:
        message = "is not set: tenants that limits does not name have no limit"
        yield Problem(path=f"{path}.limit", message=message)


def _gates(settings: Settings) -> Iterator[_Placed]:
    pools = {pool.id: pool for pool in settings.worker_pools}
    for index, queue in enumerate(settings.queues):
        for path, gate in with_inner(f"transport.queues[{index}].gate", queue.gate):
            yield path, gate, pools[queue.worker_pool_id]
    for index, pool in enumerate(settings.worker_pools):
        for path, gate in with_inner(f"worker_pools[{index}].gate", pool.gate):
            yield path, gate, pool
