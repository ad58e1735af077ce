"""Makes pools and queues as one configuration describes them."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

from async_processor.admission.base import Gate
from async_processor.admission.build import asks_prometheus, build_gate
from async_processor.admission.live_number import LiveNumber
from async_processor.admission.settings import GateSettings
from async_processor.config.settings import Settings
from async_processor.daemon.held_gauges import HeldGauges
from async_processor.daemon.shared import Shared
from async_processor.daemon.tenants import named_tenants
from async_processor.dispatch.intake import Intake, Processor
from async_processor.dispatch.merge.base import MergePolicy
from async_processor.dispatch.merge.build import build_merge_policy
from async_processor.dispatch.merge.tier_priority import LANES
from async_processor.dispatch.pool import Pool
from async_processor.dispatch.recall import Recaller
from async_processor.dispatch.route import Route
from async_processor.dispatch.second_look import SecondLook
from async_processor.dispatch.settings import PoolSettings, QueueSettings, TierPriorityPolicy
from async_processor.dispatch.worker import Worker
from async_processor.inference.headers import HeaderRules
from async_processor.sensors.settings import PrometheusSettings
from async_processor.settlement.expiry import Expirer
from async_processor.settlement.routing import ResultRoute
from async_processor.settlement.settle import Settler
from async_processor.settlement.triage import Triage
from async_processor.telemetry.metrics import QueueMetrics, TenantMetrics
from async_processor.transforms.build import build_bodies

Place = tuple[str, str]
"""Where a gate stands."""


def of_pool(pool_id: str) -> Place:
    """The place of a pool's gate."""
    return "pool", pool_id


def of_queue(queue_name: str) -> Place:
    """The place of a queue's gate."""
    return "queue", queue_name


class Blueprint(msgspec.Struct, frozen=True, kw_only=True):
    """All that a gate is made from; equal ones make the same gate.

    `pool` is the one that its budget is of. Prometheus is None for a gate that does not ask it.
    """

    settings: GateSettings
    pool: str
    prometheus: PrometheusSettings | None


SideTasks = Mapping[str, Coroutine[Any, Any, None]]


class Workshop:
    """One configuration's; a reload makes a new one."""

    def __init__(self, settings: Settings, shared: Shared) -> None:
        self.settings = settings
        self._shared = shared

    @cached_property
    def blueprints(self) -> Mapping[Place, Blueprint]:
        """Those of all gates."""
        pools, queues = self.settings.worker_pools, self.settings.queues
        return {
            **{of_pool(pool.id): self._blueprint(pool.gate, pool.id) for pool in pools},
            **{
                of_queue(queue.queue_name): self._blueprint(queue.gate, queue.worker_pool_id)
                for queue in queues
            },
        }

    def _blueprint(self, gate: GateSettings, pool: str) -> Blueprint:
        prometheus = self.settings.prometheus if asks_prometheus(gate) else None
        return Blueprint(settings=gate, pool=pool, prometheus=prometheus)

    def gate(self, place: Place, workers: LiveNumber) -> Gate:
        """A gate that there was not before; the workers are those of its pool."""
        blueprint, context = self.blueprints[place], self._shared.gates
        last = place == of_pool(blueprint.pool)
        settings, pool = blueprint.settings, blueprint.pool
        return build_gate(settings, context, workers=workers, pool=pool, last=last, place=place)

    def merge_policy(self, pool: PoolSettings) -> MergePolicy:
        """A pool's merge policy."""
        own = self._shared.gates.crew.portion(pool.id).of(pool.workers)
        return build_merge_policy(self.settings.merge_policy, workers=own)

    def pool(self, settings: PoolSettings, size: LiveNumber, gate: Gate) -> Pool:
        """A pool that there was not before."""
        metrics, merge = self._shared.metrics.pool(settings.id), self.merge_policy(settings)
        portion = self._shared.gates.crew.portion(settings.id)
        return Pool(settings.id, size, gate, merge, metrics, self._shared.clock, portion)

    def tenants(self, pool_id: str) -> TenantMetrics | None:
        """What counts whose requests start in a pool, if a tenant is named there."""
        names = named_tenants(self.settings, pool_id)
        return self._shared.metrics.tenants(pool_id, names) if names else None

    def route(self, queue: QueueSettings, pool: Pool, gate: Gate) -> Route:
        """A queue's parts."""
        metrics = self._shared.metrics.queue(queue.id, queue.queue_name, pool.name)
        results = self._result_route(queue)
        return Route(
            queue=queue,
            pool=pool,
            gate=gate,
            second_look=SecondLook(gate),
            headers=self._headers_by_lane(queue),
            bodies=build_bodies(self.settings.transforms, queue.model),
            results=results,
            triage=Triage(
                route=results,
                max_deliveries=self.settings.transport.max_deliveries,
                payload_limit=self.settings.limits.payload_bytes,
            ),
            settler=self._settler(queue, metrics),
            metrics=metrics,
        )

    def _settler(self, queue: QueueSettings, metrics: QueueMetrics) -> Settler:
        shared = self._shared
        parts = (shared.transport, metrics, shared.retries)
        if shared.tracing is None:
            return Settler(*parts, queue_id=queue.id)
        from async_processor.settlement.traced import TracedSettler

        return TracedSettler(*parts, queue_id=queue.id, spans=shared.tracing)

    def side_tasks(self, route: Route) -> SideTasks:
        """What feeds a queue's requests to the workers, and answers those that expire.

        Where other processes have all the workers, nothing is fed.
        """
        feeding = self._feeding(route) if route.pool.workers else {}
        return feeding | self._expiring(route)

    def _feeding(self, route: Route) -> dict[str, Coroutine[Any, Any, None]]:
        shared = self._shared
        intake = Intake(
            route,
            shared.transport,
            self._worker,
            shared.holdings,
            suspects=shared.suspects,
            gauges=HeldGauges(route.metrics, shared.metrics),
        )
        interval = self.settings.transport.reclaim_interval
        recaller = Recaller(route, shared.transport, interval=interval)
        return {
            f"intake {route.queue.id}": intake.run(),
            f"recaller {route.queue.id}": recaller.run(),
        }

    def _expiring(self, route: Route) -> dict[str, Coroutine[Any, Any, None]]:
        shared = self._shared
        expirer = Expirer(
            shared.transport,
            route.queue.queue_name,
            triage=route.triage,
            settler=route.settler,
            clock=shared.clock,
        )
        return {f"expirer {route.queue.id}": expirer.run()}

    def _result_route(self, queue: QueueSettings) -> ResultRoute:
        broker = self.settings.transport
        return ResultRoute(
            queue_name=queue.queue_name,
            default=broker.result_queue_name,
            own=queue.result_queue_name,
            lifetime=queue.result_ttl_seconds,
            allowed=queue.allowed_result_queues,
            reserved=broker.reserved({each.queue_name for each in self.settings.queues}),
        )

    def _headers_by_lane(self, queue: QueueSettings) -> Sequence[HeaderRules]:
        merge = self.settings.merge_policy
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
        merge = self.settings.merge_policy
        return HeaderRules(
            configured=self.settings.inference.headers,
            objective=objective,
            objective_header=merge.objective_header,
            fairness_header=merge.fairness_header,
            fairness_attribute=merge.fairness_attribute,
            priority_header=priority_header,
            priority=priority,
            allowed=queue.allowed_headers,
            header_bytes=self.settings.limits.header_bytes,
        )

    @cached_property
    def _worker(self) -> Processor:
        shared = self._shared
        worker = Worker(
            shared.transport,
            shared.engine,
            shared.parking,
            retry=self.settings.retry,
            request_timeout=self.settings.inference.request_timeout,
            gate_wait_timeout=self.settings.gate_wait_timeout,
        )
        if shared.tracing is None:
            return worker
        from async_processor.dispatch.traced import TracedWorker

        return TracedWorker(worker, shared.tracing)
