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
from async_processor.admission.live_number import LiveNumber
from async_processor.admission.settings import GateSettings
from async_processor.config.settings import Settings
from async_processor.daemon.shared import Shared
from async_processor.daemon.workshop import Workshop
from async_processor.dispatch.pool import Pool
from async_processor.dispatch.route import Route
from async_processor.dispatch.settings import PoolSettings, QueueSettings
from async_processor.lifecycle import Watch
from async_processor.settlement.held import Held, Interruption, Phase
from async_processor.telemetry.metrics import QueueMetrics

WAITING_IN_MEMORY = (Phase.QUEUED, Phase.PARKED)


class Topology:
    """Written by `start`, `feed` and `apply`, which never run at once; read by everybody."""

    def __init__(self, workshop: Workshop, shared: Shared) -> None:
        self._workshop = workshop
        self._shared = shared
        self._watch: Watch | None = None
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}
        self._retired: list[tuple[Gate, frozenset[Held]]] = []
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

    def size_of(self, pool_id: str) -> LiveNumber | None:
        """The number of a pool's workers; None when there is no such pool yet."""
        pool = self._pools.get(pool_id)
        return None if pool is None else pool.size

    async def start(self) -> None:
        """Start the gates."""
        for gate in self._gates():
            await gate.start()

    async def stop(self) -> None:
        """Stop the gates, those of earlier configurations too."""
        for gate in (*self._gates(), *(gate for gate, _ in self._retired)):
            await gate.stop()

    def feed(self, watch: Watch) -> None:
        """Begin to take work in; the side tasks are the watch's."""
        self._watch = watch
        for route in self.routes:
            self._spawn(route)

    async def apply(self, workshop: Workshop) -> None:
        """Take over another configuration. Raises what a new gate raises; nothing then changes."""
        gates = _Gates(self, self._workshop, workshop)
        async with AsyncExitStack() as started:
            for gate in gates.new:
                await gate.start()
                started.push_async_callback(gate.stop)
            started.pop_all()
        changed = [queue for queue in self._queues(workshop) if self._differs(queue, workshop)]
        gone = self._routes.keys() - {queue.queue_name for queue in self._queues(workshop)}
        for name in (*gone, *(queue.queue_name for queue in changed)):
            await self._halt(name)
        self._change_pools(workshop, gates)
        self._change_routes(workshop, gates, changed, gone)
        self._workshop = workshop
        self._give_back({*gone, *(queue.queue_name for queue in changed)})
        for queue in changed:
            self._spawn(self._routes[queue.queue_name])
        await self._retire(gates.replaced)

    def _make(self, workshop: Workshop) -> None:
        gates = _Gates(self, None, workshop)
        self._change_pools(workshop, gates)
        self._change_routes(workshop, gates, self._queues(workshop), ())

    def _gates(self) -> Iterable[Gate]:
        yield from (pool.gate for pool in self.pools)
        yield from (route.gate for route in self.routes)

    @staticmethod
    def _queues(workshop: Workshop) -> Collection[QueueSettings]:
        return workshop.settings.queues

    def _differs(self, queue: QueueSettings, workshop: Workshop) -> bool:
        """Whether anything that a queue's requests go by has changed."""
        route = self._routes.get(queue.queue_name)
        if route is None or route.queue != queue:
            return True
        return _common(self.settings, queue) != _common(workshop.settings, queue)

    def _change_pools(self, workshop: Workshop, gates: _Gates) -> None:
        wanted = {pool.id: pool for pool in workshop.settings.worker_pools}
        for name, settings in wanted.items():
            pool, gate = self._pools.get(name), gates.of_pool[name]
            if pool is None:
                self._pools[name] = workshop.pool(settings, gates.sizes[name], gate)
            elif self._pool_differs(settings, workshop):
                pool.reconfigure(settings.workers, gate, workshop.merge_policy(settings))
        for name in self._pools.keys() - wanted.keys():
            self._pools.pop(name).close()

    def _pool_differs(self, settings: PoolSettings, workshop: Workshop) -> bool:
        before = {pool.id: pool for pool in self.settings.worker_pools}.get(settings.id)
        old, new = self.settings, workshop.settings
        same = (old.merge_policy, old.prometheus) == (new.merge_policy, new.prometheus)
        return before != settings or not same

    def _change_routes(
        self,
        workshop: Workshop,
        gates: _Gates,
        changed: Iterable[QueueSettings],
        gone: Iterable[str],
    ) -> None:
        for name in gone:
            del self._routes[name]
        for queue in changed:
            pool, gate = self._pools[queue.worker_pool_id], gates.of_queue[queue.queue_name]
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

    async def _retire(self, gates: Iterable[Gate]) -> None:
        """Stop gates that nothing held can have a ticket of any more."""
        held = frozenset(self._shared.holdings)
        self._retired += [(gate, held) for gate in gates]
        alive = set(self._shared.holdings)
        for gate, holders in self._retired:
            if not holders & alive:
                await gate.stop()
        self._retired = [pair for pair in self._retired if pair[1] & alive]


class _Gates:
    """The gates of a new configuration: those that stay, and those that are new."""

    def __init__(self, topology: Topology, before: Workshop | None, after: Workshop) -> None:
        self.sizes = {
            pool.id: topology.size_of(pool.id) or LiveNumber(pool.workers)
            for pool in after.settings.worker_pools
        }
        self.of_pool: dict[str, Gate] = {}
        self.of_queue: dict[str, Gate] = {}
        self.new: list[Gate] = []
        self.replaced: list[Gate] = []
        kept = _kept_gates(topology, before, after) if before else {}
        for pool in after.settings.worker_pools:
            gate = kept.get(("pool", pool.id))
            self.of_pool[pool.id] = gate or self._added(after.pool_gate(pool, self.sizes[pool.id]))
        for queue in after.settings.queues:
            gate = kept.get(("queue", queue.queue_name))
            self.of_queue[queue.queue_name] = gate or self._added(
                after.queue_gate(queue, self.sizes[queue.worker_pool_id])
            )
        if before:
            staying = {id(gate) for gate in kept.values()}
            old = (*(p.gate for p in topology.pools), *(r.gate for r in topology.routes))
            self.replaced = [gate for gate in old if id(gate) not in staying]

    def _added(self, gate: Gate) -> Gate:
        self.new.append(gate)
        return gate


def _kept_gates(
    topology: Topology, before: Workshop, after: Workshop
) -> Mapping[tuple[str, str], Gate]:
    """Gates whose settings, and the pool that their budget is of, are the same."""
    if before.settings.prometheus != after.settings.prometheus:
        return {}
    old_pools = {pool.id: pool.gate for pool in before.settings.worker_pools}
    new_pools = {pool.id: pool.gate for pool in after.settings.worker_pools}
    kept: dict[tuple[str, str], Gate] = {}
    for pool in topology.pools:
        if new_pools.get(pool.name) == old_pools[pool.name]:
            kept["pool", pool.name] = pool.gate
    new_queues = {queue.queue_name: queue for queue in after.settings.queues}
    for route in topology.routes:
        queue = new_queues.get(route.queue.queue_name)
        if queue and _gate_and_pool(queue) == _gate_and_pool(route.queue):
            kept["queue", queue.queue_name] = route.gate
    return kept


def _gate_and_pool(queue: QueueSettings) -> tuple[GateSettings, str]:
    return queue.gate, queue.worker_pool_id


def _common(settings: Settings, queue: QueueSettings) -> tuple[object, ...]:
    """What a queue's requests go by besides their queue's own settings."""
    pool = next(pool for pool in settings.worker_pools if pool.id == queue.worker_pool_id)
    return (
        pool,
        settings.merge_policy,
        settings.prometheus,
        settings.inference,
        settings.retry,
        settings.limits,
        settings.gate_wait_timeout,
        settings.transport.result_queue_name,
        settings.transport.max_deliveries,
        {each.queue_name for each in settings.queues},
    )
