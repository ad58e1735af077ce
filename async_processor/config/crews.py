"""What gates that replicas share need of a replica with several processes.

Each process is on the replicas' roll by itself and takes its part of what such a gate allows. One
that has no worker of the gate's pool would keep its part from those that have some.
"""

from __future__ import annotations

from collections.abc import Iterator

from async_processor.admission.settings import GateSettings, RedisLeasedRateGate, RedisQuotaGate
from async_processor.config.gate_parts import with_inner
from async_processor.config.settings import Settings
from async_processor.dispatch.settings import PoolSettings
from async_processor.errors import Problem


def shared_pools(settings: Settings) -> Iterator[tuple[int, PoolSettings]]:
    """The pools with a gate, or with a queue's gate, that replicas divide; with their indices."""
    for index, pool in enumerate(settings.worker_pools):
        queues = [queue for queue in settings.queues if queue.worker_pool_id == pool.id]
        gates = [pool.gate, *(queue.gate for queue in queues)]
        if any(_divided(part) for gate in gates for _, part in with_inner("", gate)):
            yield index, pool


def unmanned(settings: Settings, processes: int) -> Iterator[Problem]:
    """The pools of which one of so many processes would have no worker."""
    for index, pool in shared_pools(settings):
        if pool.workers < processes:
            message = (
                f"got {pool.workers}, must be {processes} (processes) or more with a gate that is "
                "shared: each process takes its part of what that allows, and needs a worker for it"
            )
            yield Problem(path=f"worker_pools[{index}].workers", message=message)


def _divided(gate: GateSettings) -> bool:
    """What counts in Redis anyway is not divided."""
    return gate.shared and not isinstance(gate, RedisLeasedRateGate | RedisQuotaGate)
