"""Shows what the gates read and allow, and nothing of queues and pools that are gone."""

from __future__ import annotations

from typing import Final

from async_processor.admission.base import Reason
from async_processor.clock import Clock
from async_processor.daemon.topology import Topology
from async_processor.telemetry.metrics import Metrics

INTERVAL: Final = 0.9
"""Seconds between two looks at the gates: `gate_closed` has to grow at least once a second."""


class GateGauges:
    """Publishes every gate's reading and budget once a second, and clears up what is gone."""

    def __init__(self, topology: Topology, metrics: Metrics, clock: Clock) -> None:
        self._topology = topology
        self._metrics = metrics
        self._clock = clock

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            self.publish()
            await self._clock.sleep(INTERVAL)

    def publish(self) -> None:
        """Publish once."""
        for pool in self._topology.pools:
            pool.publish_gate()
        for route in self._topology.routes:
            state = route.gate.state()
            route.metrics.gate_reading(state)
            route.metrics.dispatch_budget(min(state.budget, route.pool.gate.budget()))
            if state.budget <= 0 and route.pool.workers and not route.backlog.is_empty:
                route.metrics.gate_decision(Reason.GATE_CLOSED.value)
        self._metrics.keep_gauges(self._topology.owners)
