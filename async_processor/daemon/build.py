"""Builds the daemon's parts from the settings: the one place that knows them all."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

from async_processor.admission.build import GateContext, build_gate
from async_processor.clock import Clock
from async_processor.config.settings import RedisTransport, Settings
from async_processor.daemon.backlog import BacklogPoll
from async_processor.daemon.gauges import GateGauges, HeldGauges
from async_processor.daemon.readiness import Readiness
from async_processor.daemon.status import Status
from async_processor.dispatch.intake import Intake
from async_processor.dispatch.merge.build import build_merge_policy
from async_processor.dispatch.merge.tier_priority import LANES
from async_processor.dispatch.pool import Pool
from async_processor.dispatch.recall import Recaller
from async_processor.dispatch.route import Route
from async_processor.dispatch.settings import PoolSettings, QueueSettings, TierPriorityPolicy
from async_processor.dispatch.suspects import Suspects
from async_processor.dispatch.worker import Worker
from async_processor.inference.base import Engine
from async_processor.inference.headers import HeaderRules
from async_processor.inference.http import HttpEngine
from async_processor.lifecycle import Service
from async_processor.settlement.cancellation import CancellationWatch
from async_processor.settlement.expiry import Expirer
from async_processor.settlement.held import Holdings
from async_processor.settlement.lease_keeper import LeaseKeeper
from async_processor.settlement.reaper import Reaper, RetryPromoter
from async_processor.settlement.routing import ResultRoute
from async_processor.settlement.settle import Settler
from async_processor.settlement.triage import Triage
from async_processor.telemetry.exposition import metrics_server
from async_processor.telemetry.health import health_server
from async_processor.telemetry.metrics import Metrics, PoolMetrics, QueueMetrics
from async_processor.telemetry.web import WebServer
from async_processor.transport.base import Transport

SideTasks = Mapping[str, Coroutine[Any, Any, None]]


class Parts(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Everything that the daemon starts, runs and stops.

    `services` are started in this order and stopped in the reverse. `taking` makes the side tasks
    that bring work in, `keeping` those that look after work that is here.
    """

    settings: Settings
    transport: Transport
    services: Sequence[Service]
    holdings: Holdings
    readiness: Readiness
    metrics: Metrics
    health: WebServer
    exposition: WebServer
    routes: Sequence[Route]
    taking: Callable[[], SideTasks]
    keeping: Callable[[], SideTasks]


def build(
    settings: Settings, *, transport: Transport | None = None, engine: Engine | None = None
) -> Parts:
    """Make the parts; nothing is connected yet.

    A transport or an engine given here is used instead of the configured one.
    """
    transport = transport or build_transport(settings)
    return _Assembly(settings, transport, engine or build_engine(settings, transport)).parts()


def build_engine(settings: Settings, transport: Transport) -> Engine:
    """The HTTP client, with a connection for each worker."""
    return HttpEngine(
        clock=transport.clock,
        connections=sum(pool.workers for pool in settings.worker_pools),
        answer_bytes=settings.limits.answer_bytes,
        header_bytes=settings.limits.header_bytes,
        tls=settings.inference.tls,
    )


def build_transport(settings: Settings) -> Transport:
    """The transport that the settings name."""
    if isinstance(settings.transport, RedisTransport):
        from async_processor.transport.redis_sorted_set import RedisSortedSet

        return RedisSortedSet(
            settings.transport,
            [queue.queue_name for queue in settings.queues],
            claim_bytes=settings.limits.claim_bytes,
        )
    from async_processor.transport.memory import MemoryTransport

    return MemoryTransport(settings.transport)


def _gate_context(settings: Settings, clock: Clock) -> GateContext:
    broker = settings.transport
    if not isinstance(broker, RedisTransport):
        return GateContext(prometheus=settings.prometheus, clock=clock)
    return GateContext(
        prometheus=settings.prometheus, clock=clock, redis_url=broker.url, tls=broker.tls
    )


class _Assembly:
    """The parts on the bench: each is made once, by whoever needs it first."""

    def __init__(self, settings: Settings, transport: Transport, engine: Engine) -> None:
        self._settings = settings
        self._transport = transport
        self._engine = engine
        self._clock = transport.clock
        self._metrics = Metrics()
        self._holdings = Holdings()
        self._readiness = Readiness()
        self._suspects = Suspects()
        self._gates = _gate_context(settings, self._clock)

    def parts(self) -> Parts:
        return Parts(
            settings=self._settings,
            transport=self._transport,
            services=self._services(),
            holdings=self._holdings,
            readiness=self._readiness,
            metrics=self._metrics,
            health=self._health,
            exposition=self._exposition,
            routes=self._routes,
            taking=self._taking,
            keeping=self._keeping,
        )

    def _services(self) -> Sequence[Service]:
        """Probes answer first, and the broker, which may let us wait, is asked last."""
        gates = [route.gate for route in self._routes]
        gates += [pool.gate for pool, _ in self._pools.values()]
        return [
            self._health,
            self._exposition,
            self._engine,
            self._gates.sensors,
            self._gates.redis,
            self._gates.quotas,
            *gates,
            self._transport,
        ]

    def _taking(self) -> SideTasks:
        tasks: dict[str, Coroutine[Any, Any, None]] = {}
        for route in self._routes:
            tasks[f"intake {route.queue.id}"] = self._intake(route).run()
            tasks[f"expirer {route.queue.id}"] = self._expirer(route).run()
            tasks[f"recaller {route.queue.id}"] = self._recaller(route).run()
        reaper = Reaper(
            self._transport,
            self._clock,
            self._metrics_by_name,
            interval=self._settings.transport.reclaim_interval,
        )
        tasks["reaper"] = reaper.run()
        tasks["retries"] = RetryPromoter(self._transport, self._clock).run()
        return tasks

    def _keeping(self) -> SideTasks:
        broker = self._settings.transport
        keeper = LeaseKeeper(
            self._transport,
            self._holdings,
            self._clock,
            self._metrics_by_name,
            lease_ttl=broker.lease_ttl,
        )
        gauges = GateGauges(self._routes, tuple(self._pools.values()), self._clock)
        tasks = {
            "leases": keeper.run(),
            "cancellations": CancellationWatch(self._transport, self._holdings, self._clock).run(),
            "gauges": gauges.run(),
            "sensors": self._gates.sensors.run(),
            "gates": self._gates.run(),
        }
        for pool, _ in self._pools.values():
            tasks[f"pool {pool.name}"] = pool.watch_gate()
        if broker.backlog_poll_interval:
            poll = BacklogPoll(
                self._transport, self._routes, self._clock, interval=broker.backlog_poll_interval
            )
            tasks["backlog"] = poll.run()
        return tasks

    @cached_property
    def _metrics_by_name(self) -> Mapping[str, QueueMetrics]:
        return {route.queue.queue_name: route.metrics for route in self._routes}

    @cached_property
    def _health(self) -> WebServer:
        server = self._settings.server
        pools = [pool for pool, _ in self._pools.values()]
        status = Status(self._transport, self._routes, pools, self._holdings, self._readiness)
        return health_server(
            serving=lambda: self._readiness.serving,
            ping=self._transport.ping,
            status=status.read,
            clock=self._clock,
            port=server.health_port,
            bind=server.bind,
            bearer_token=server.bearer_token,
        )

    @cached_property
    def _exposition(self) -> WebServer:
        server = self._settings.server
        return metrics_server(
            self._metrics,
            port=server.metrics_port,
            bind=server.bind,
            bearer_token=server.bearer_token,
        )

    @cached_property
    def _pools(self) -> Mapping[str, tuple[Pool, PoolMetrics]]:
        return {pool.id: self._pool(pool) for pool in self._settings.worker_pools}

    def _pool(self, settings: PoolSettings) -> tuple[Pool, PoolMetrics]:
        metrics = self._metrics.pool(settings.id)
        gate = build_gate(settings.gate, self._gates, workers=settings.workers)
        merge = build_merge_policy(self._settings.merge_policy, workers=settings.workers)
        return Pool(settings, gate, merge, metrics, self._clock), metrics

    @cached_property
    def _routes(self) -> Sequence[Route]:
        return [self._route(queue) for queue in self._settings.queues]

    def _route(self, queue: QueueSettings) -> Route:
        pool, _ = self._pools[queue.worker_pool_id]
        metrics = self._metrics.queue(queue.id, queue.queue_name, pool.name)
        results = self._result_route(queue)
        return Route(
            queue=queue,
            pool=pool,
            gate=build_gate(queue.gate, self._gates, workers=pool.workers),
            headers=self._headers_by_lane(queue),
            results=results,
            triage=Triage(
                route=results,
                max_deliveries=self._settings.transport.max_deliveries,
                payload_limit=self._settings.limits.payload_bytes,
            ),
            settler=Settler(self._transport, metrics, queue.id),
            metrics=metrics,
        )

    def _result_route(self, queue: QueueSettings) -> ResultRoute:
        broker = self._settings.transport
        machinery = {each.queue_name for each in self._settings.queues}
        machinery |= {broker.retry_queue_name, broker.dead_letter_queue_name}
        return ResultRoute(
            queue_name=queue.queue_name,
            default=broker.result_queue_name,
            own=queue.result_queue_name,
            lifetime=queue.result_ttl_seconds,
            allowed=queue.allowed_result_queues,
            reserved=frozenset(machinery),
        )

    def _headers_by_lane(self, queue: QueueSettings) -> Sequence[HeaderRules]:
        merge = self._settings.merge_policy
        if not isinstance(merge, TierPriorityPolicy):
            return (self._headers(queue, queue.inference_objective),)
        objectives = {str(lane): objective for lane, objective in merge.lane_objectives.items()}
        return [
            self._headers(
                queue,
                objectives.get(lane) or queue.inference_objective,
                priority_header=merge.priority_header,
                priority=str(index),
            )
            for index, lane in enumerate(LANES)
        ]

    def _headers(
        self, queue: QueueSettings, objective: str, *, priority_header: str = "", priority: str = ""
    ) -> HeaderRules:
        merge = self._settings.merge_policy
        return HeaderRules(
            configured=self._settings.inference.headers,
            objective=objective,
            objective_header=merge.objective_header,
            fairness_header=merge.fairness_header,
            fairness_attribute=merge.fairness_attribute,
            priority_header=priority_header,
            priority=priority,
            allowed=queue.allowed_headers,
            header_bytes=self._settings.limits.header_bytes,
        )

    def _intake(self, route: Route) -> Intake:
        return Intake(
            route,
            self._transport,
            self._worker,
            self._holdings,
            suspects=self._suspects,
            gauges=HeldGauges(route.metrics, self._metrics),
        )

    def _expirer(self, route: Route) -> Expirer:
        return Expirer(
            self._transport,
            route.queue.queue_name,
            triage=route.triage,
            settler=route.settler,
            clock=self._clock,
        )

    def _recaller(self, route: Route) -> Recaller:
        return Recaller(route, self._transport, interval=self._settings.transport.reclaim_interval)

    @cached_property
    def _worker(self) -> Worker:
        return Worker(
            self._transport,
            self._engine,
            retry=self._settings.retry,
            request_timeout=self._settings.inference.request_timeout,
            gate_wait_timeout=self._settings.gate_wait_timeout,
        )
