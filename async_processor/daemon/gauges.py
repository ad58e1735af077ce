"""Shows where requests stand and what the gates say."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from async_processor.clock import Clock
from async_processor.dispatch.pool import Pool
from async_processor.dispatch.route import Route
from async_processor.settlement.held import Phase
from async_processor.telemetry.metrics import Metrics, PoolMetrics, QueueMetrics

INTERVAL: Final = 1.0
"""Seconds between two looks at the gates."""


class HeldGauges:
    """Counts a queue's deliveries by phase; those being settled are counted for the process."""

    def __init__(self, queue: QueueMetrics, process: Metrics) -> None:
        self._gauges = {
            Phase.QUEUED: queue.queue_depth,
            Phase.PARKED: queue.gate_waiting,
            Phase.IN_FLIGHT: queue.inflight,
            Phase.SETTLING: process.settle_pending,
        }

    def moved(self, before: Phase | None, after: Phase | None) -> None:
        if before in self._gauges:
            self._gauges[before].dec()
        if after in self._gauges:
            self._gauges[after].inc()


class GateGauges:
    """Publishes every gate's reading and budget once a second."""

    def __init__(
        self,
        routes: Collection[Route],
        pools: Collection[tuple[Pool, PoolMetrics]],
        clock: Clock,
    ) -> None:
        self._routes = routes
        self._pools = pools
        self._clock = clock

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            self.publish()
            await self._clock.sleep(INTERVAL)

    def publish(self) -> None:
        """Publish once."""
        for pool, metrics in self._pools:
            metrics.gate_reading(pool.gate.state())
        for route in self._routes:
            state = route.gate.state()
            route.metrics.gate_reading(state)
            route.metrics.dispatch_budget(min(state.budget, route.pool.gate.budget()))
