"""The pools and queues that run now, and how they change while they run.

A reload makes new gates, and only when all of them have started does anything change; then pools
take over their numbers, changed queues get new intakes, and removed ones lose theirs. What runs
goes on as it began. What merely waits in memory under rules that have changed goes back to the
broker, uncounted, and comes in again under the new ones. A gate whose settings have not changed
stays, with all it knows; one that is replaced lives until the last of its tickets has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from contextlib import AsyncExitStack

from async_processor.admission.base import Gate
from async_processor.config.settings import Settings
from async_processor.daemon.retirement import Retirement
from async_processor.daemon.shared import Shared
from async_processor.daemon.succession import Succession
from async_processor.daemon.workshop import Blueprint, Place, Workshop, of_pool, of_queue
from async_processor.dispatch.pool import Pool
from async_processor.dispatch.route import Route
from async_processor.dispatch.settings import PoolSettings, QueueSettings
from async_processor.lifecycle import Watch
from async_processor.settlement.held import Interruption, Phase
from async_processor.telemetry.metrics import QueueMetrics

WAITING_IN_MEMORY = (Phase.QUEUED, Phase.PARKED)


class Topology:
    """Written by `start`, `feed` and `apply`, which never run at once; read by everybody."""

    def __init__(self, workshop: Workshop, shared: Shared) -> None:
        self._workshop = workshop
        self._shared = shared
        self._watch: Watch | None = None
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}
        self.retirement = Retirement(shared.holdings, shared.clock)
        self._gates: Mapping[Place, Gate] = {}
        self._pools: dict[str, Pool] = {}
        self._routes: dict[str, Route] = {}
        self.metrics: dict[str, QueueMetrics] = {}
        """By queue name; those of removed queues stay, for what they still hold."""
        self._make(workshop)

    @property
    def settings(self) -> Settings:
        """The configuration that is in force."""
        return self._workshop.settings

    @property
    def pools(self) -> Collection[Pool]:
        return tuple(self._pools.values())

    @property
    def routes(self) -> Collection[Route]:
        return tuple(self._routes.values())

    async def start(self) -> None:
        """Start the gates."""
        for gate in self._gates.values():
            await gate.start()

    async def stop(self) -> None:
        """Stop the gates, those of earlier configurations too."""
        for gate in self._gates.values():
            await gate.stop()
        await self.retirement.stop()

    def feed(self, watch: Watch) -> None:
        """Begin to take work in; the side tasks are the watch's."""
        self._watch = watch
        for route in self.routes:
            self._spawn(route)

    async def apply(self, workshop: Workshop) -> None:
        """Take over another configuration. Raises what a new gate raises; nothing then changes."""
        succession = self._succession(self._workshop.blueprints, workshop)
        async with AsyncExitStack() as started:
            for gate in succession.new():
                await gate.start()
                started.push_async_callback(gate.stop)
            started.pop_all()
        changed = [
            queue for queue in self._queues(workshop) if self._differs(queue, workshop, succession)
        ]
        gone = self._routes.keys() - {queue.queue_name for queue in self._queues(workshop)}
        for name in (*gone, *(queue.queue_name for queue in changed)):
            await self._halt(name)
        replaced = [gate for place, gate in self._gates.items() if not succession.stays(place)]
        self._take_over(workshop, succession, changed, gone)
        self._give_back({*gone, *(queue.queue_name for queue in changed)})
        for queue in changed:
            self._spawn(self._routes[queue.queue_name])
        self.retirement.add(replaced)

    def _make(self, workshop: Workshop) -> None:
        self._take_over(workshop, self._succession({}, workshop), self._queues(workshop), ())

    def _succession(self, before: Mapping[Place, Blueprint], after: Workshop) -> Succession:
        sizes = {pool.name: pool.size for pool in self.pools}
        return Succession(self._gates, before, after, sizes)

    def _take_over(
        self,
        workshop: Workshop,
        succession: Succession,
        changed: Iterable[QueueSettings],
        gone: Iterable[str],
    ) -> None:
        self._change_pools(workshop, succession)
        self._gates = succession.gates
        self._change_routes(workshop, changed, gone)
        self._workshop = workshop

    @staticmethod
    def _queues(workshop: Workshop) -> Collection[QueueSettings]:
        return workshop.settings.queues

    def _differs(self, queue: QueueSettings, workshop: Workshop, succession: Succession) -> bool:
        """Whether anything that a queue's requests go by has changed."""
        route = self._routes.get(queue.queue_name)
        if route is None or route.queue != queue:
            return True
        places = (of_queue(queue.queue_name), of_pool(queue.worker_pool_id))
        if not all(map(succession.stays, places)):
            return True
        return _common(self.settings, queue) != _common(workshop.settings, queue)

    def _change_pools(self, workshop: Workshop, succession: Succession) -> None:
        wanted = {pool.id: pool for pool in workshop.settings.worker_pools}
        for name, settings in wanted.items():
            pool, gate = self._pools.get(name), succession.gates[of_pool(name)]
            if pool is None:
                self._pools[name] = workshop.pool(settings, succession.sizes[name], gate)
            elif gate is not pool.gate or self._pool_differs(settings, workshop):
                pool.reconfigure(settings.workers, gate, workshop.merge_policy(settings))
        for name in self._pools.keys() - wanted.keys():
            self._pools.pop(name).close()

    def _pool_differs(self, settings: PoolSettings, workshop: Workshop) -> bool:
        before = {pool.id: pool for pool in self.settings.worker_pools}.get(settings.id)
        return before != settings or self.settings.merge_policy != workshop.settings.merge_policy

    def _change_routes(
        self,
        workshop: Workshop,
        changed: Iterable[QueueSettings],
        gone: Iterable[str],
    ) -> None:
        for name in gone:
            del self._routes[name]
        for queue in changed:
            pool = self._pools[queue.worker_pool_id]
            gate = self._gates[of_queue(queue.queue_name)]
            route = workshop.route(queue, pool, gate)
            self._routes[queue.queue_name] = route
            self.metrics[queue.queue_name] = route.metrics

    def _give_back(self, queue_names: Collection[str]) -> None:
        for held in self._shared.holdings:
            if held.delivery.queue_name in queue_names and held.phase in WAITING_IN_MEMORY:
                held.interrupt(Interruption.DRAINED)

    def _spawn(self, route: Route) -> None:
        if self._watch is None:
            return
        side_tasks = self._workshop.side_tasks(route)
        self._tasks[route.queue.queue_name] = [
            self._watch.spawn(name, task) for name, task in side_tasks.items()
        ]

    async def _halt(self, queue_name: str) -> None:
        """Take no more work from a queue."""
        tasks = self._tasks.pop(queue_name, [])
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _common(settings: Settings, queue: QueueSettings) -> tuple[object, ...]:
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
