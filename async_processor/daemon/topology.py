"""The pools and queues that run now, and how they change while they run.

A reload first makes all that is new, and only when all of it stands and every new gate has started
does anything change; then pools take over their numbers, changed queues get new intakes, and
removed ones lose theirs. What runs goes on as it began. What merely waits in memory under rules
that have changed goes back to the broker, uncounted, and comes in again under the new ones. A gate
whose settings have not changed stays, with all it knows; one that is replaced lives until the last
of its tickets has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Set
from contextlib import AsyncExitStack

from async_processor.admission.base import Gate
from async_processor.config.settings import Settings
from async_processor.daemon import open_files
from async_processor.daemon.change import Change, common_rules
from async_processor.daemon.pools import Pools
from async_processor.daemon.retirement import Retirement
from async_processor.daemon.shared import Shared
from async_processor.daemon.succession import Succession
from async_processor.daemon.workshop import Blueprint, Place, Workshop, of_pool, of_queue
from async_processor.dispatch.pool import Pool
from async_processor.dispatch.route import Route
from async_processor.dispatch.settings import QueueSettings
from async_processor.lifecycle import Watch
from async_processor.settlement.held import Interruption, Phase
from async_processor.telemetry.metrics import QueueMetrics
from async_processor.telemetry.series import Owner, owned_by_pool

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
        self._pools = Pools()
        self._routes: dict[str, Route] = {}
        self._coming: Change | None = None
        """Made, and not in force yet."""
        self.metrics: dict[str, QueueMetrics] = {}
        """By queue name; those of removed queues stay, for what they still hold."""
        self._take_over(self._prepared(workshop, self._succession({}, workshop)))

    @property
    def settings(self) -> Settings:
        """The configuration that is in force."""
        return self._workshop.settings

    @property
    def pools(self) -> Collection[Pool]:
        return tuple(self._pools)

    @property
    def routes(self) -> Collection[Route]:
        return tuple(self._routes.values())

    @property
    def owners(self) -> Set[Owner]:
        """Whose gauges are to be seen: those of all queues and pools, also of those to come."""
        routes, pools = [*self._routes.values()], {pool.name for pool in self._pools}
        if self._coming is not None:
            routes += self._coming.routes.values()
            pools |= self._coming.pools.keys()
        return {*(route.metrics.owner for route in routes), *map(owned_by_pool, pools)}

    async def start(self) -> None:
        """Start the gates."""
        self._provide_open_files()
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
        """Take over another configuration.

        Raises whatever is raised where something new is made or started; nothing then changes.
        """
        succession = self._succession(self._workshop.blueprints, workshop)
        async with AsyncExitStack() as undo:
            for gate in succession.new():
                undo.push_async_callback(gate.stop)
                await gate.start()
            self._coming = change = self._prepared(workshop, succession)
            undo.callback(self._forget_coming)
            for name in change.queue_names:
                await self._halt(name)
            self._take_over(change)
            undo.pop_all()
        self._provide_open_files()
        self._give_back(change.queue_names)
        for route in change.routes.values():
            self._spawn(route)
        self.retirement.add(change.replaced)

    def _provide_open_files(self) -> None:
        open_files.provide(sum(pool.workers for pool in self._pools))

    def _succession(self, before: Mapping[Place, Blueprint], after: Workshop) -> Succession:
        return Succession(self._gates, before, after, self._pools.sizes)

    def _prepared(self, workshop: Workshop, succession: Succession) -> Change:
        """Make what is new, and touch nothing that there is."""
        pools = self._pools.prepared(self.settings, workshop, succession)
        queues = workshop.settings.queues
        routes = {
            queue.queue_name: workshop.route(
                queue,
                pools[queue.worker_pool_id].pool,
                succession.gates[of_queue(queue.queue_name)],
            )
            for queue in queues
            if self._differs(queue, workshop, succession)
        }
        return Change(
            workshop=workshop,
            gates=succession.gates,
            pools=pools,
            routes=routes,
            gone=self._routes.keys() - {queue.queue_name for queue in queues},
            replaced=[gate for place, gate in self._gates.items() if not succession.stays(place)],
        )

    def _forget_coming(self) -> None:
        self._coming = None

    def _take_over(self, change: Change) -> None:
        """From here on nothing waits and nothing can fail."""
        self._pools.take_over(change.pools)
        self._gates = change.gates
        for name in change.gone:
            del self._routes[name]
        self._routes |= change.routes
        self.metrics |= {name: route.metrics for name, route in change.routes.items()}
        for name, route in self._routes.items():
            gates = (change.gates[of_queue(name)], change.gates[of_pool(route.pool.name)])
            self.retirement.asks(name, gates)
        self._workshop = change.workshop
        self._coming = None

    def _differs(self, queue: QueueSettings, workshop: Workshop, succession: Succession) -> bool:
        """Whether anything that a queue's requests go by has changed."""
        route = self._routes.get(queue.queue_name)
        if route is None or route.queue != queue:
            return True
        places = (of_queue(queue.queue_name), of_pool(queue.worker_pool_id))
        if not all(map(succession.stays, places)):
            return True
        return common_rules(self.settings, queue) != common_rules(workshop.settings, queue)

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
