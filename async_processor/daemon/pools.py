"""The worker pools that there are, and how a reload changes them.

A pool that is gone from the configuration is kept as long as anything of it runs: should it come
back meanwhile, what runs still counts against its workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from async_processor.admission.base import Gate
from async_processor.admission.live_number import LiveNumber
from async_processor.config.settings import Settings
from async_processor.daemon.succession import Succession
from async_processor.daemon.workshop import Workshop, of_pool
from async_processor.dispatch.merge.base import MergePolicy
from async_processor.dispatch.pool import Pool
from async_processor.dispatch.settings import PoolSettings
from async_processor.telemetry.metrics import TenantMetrics


class NextPool(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A pool of the next configuration; `merge` is None for one that takes nothing over."""

    pool: Pool
    workers: int
    gate: Gate
    merge: MergePolicy | None
    tenants: TenantMetrics | None


class Pools:
    """Written by `take_over` alone."""

    def __init__(self) -> None:
        self._open: dict[str, Pool] = {}
        self._closed: dict[str, Pool] = {}

    def __iter__(self) -> Iterator[Pool]:
        return iter(tuple(self._open.values()))

    @property
    def sizes(self) -> Mapping[str, LiveNumber]:
        """By name; with those of pools that may come back."""
        return {name: pool.size for name, pool in (self._closed | self._open).items()}

    def prepared(
        self, before: Settings, after: Workshop, succession: Succession
    ) -> Mapping[str, NextPool]:
        """All pools of the next configuration; new ones are made, and the others as they were."""
        same_policy = before.merge_policy == after.settings.merge_policy
        pools: dict[str, NextPool] = {}
        for settings in after.settings.worker_pools:
            name, gate, merge = settings.id, succession.gates[of_pool(settings.id)], None
            pool = (self._closed | self._open).get(name)
            if pool is None:
                pool = after.pool(settings, succession.sizes[name], gate)
            elif not (same_policy and self._stays(pool, settings, gate)):
                merge = after.merge_policy(settings)
            pools[name] = NextPool(
                pool=pool,
                workers=settings.workers,
                gate=gate,
                merge=merge,
                tenants=after.tenants(name),
            )
        return pools

    def _stays(self, pool: Pool, settings: PoolSettings, gate: Gate) -> bool:
        """Whether it is what it was before."""
        return pool.name in self._open and pool.gate is gate and pool.size.value == settings.workers

    def take_over(self, pools: Mapping[str, NextPool]) -> None:
        """Go on with these; what runs in others goes on, too."""
        for each in pools.values():
            each.pool.tenants = each.tenants
            if each.merge is not None:
                each.pool.reconfigure(each.workers, each.gate, each.merge)
        for name in self._open.keys() - pools.keys():
            self._open[name].close()
        self._closed = {
            name: pool
            for name, pool in (self._closed | self._open).items()
            if name not in pools and not pool.is_empty
        }
        self._open = {name: each.pool for name, each in pools.items()}
