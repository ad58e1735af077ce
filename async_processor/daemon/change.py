"""All that a reload puts in the place of what there is, and what a queue's requests go by."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from async_processor.admission.base import Gate
from async_processor.config.settings import Settings
from async_processor.daemon.pools import NextPool
from async_processor.daemon.workshop import Place, Workshop
from async_processor.dispatch.route import Route
from async_processor.dispatch.settings import QueueSettings


class Change(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Made whole before any of it takes effect; `routes` are those of new and changed queues."""

    workshop: Workshop
    gates: Mapping[Place, Gate]
    pools: Mapping[str, NextPool]
    routes: Mapping[str, Route]
    gone: Collection[str]
    replaced: Collection[Gate]

    @property
    def queue_names(self) -> Collection[str]:
        """The queues from which no more work may be taken by the old rules."""
        return {*self.gone, *self.routes}


def common_rules(settings: Settings, queue: QueueSettings) -> tuple[object, ...]:
    """What a queue's requests go by besides their queue's own settings."""
    pool = next(pool for pool in settings.worker_pools if pool.id == queue.worker_pool_id)
    return (
        pool,
        settings.merge_policy,
        settings.inference,
        settings.transforms,
        settings.retry,
        settings.limits,
        settings.gate_wait_timeout,
        settings.transport.result_queue_name,
        settings.transport.max_deliveries,
        {each.queue_name for each in settings.queues},
    )
