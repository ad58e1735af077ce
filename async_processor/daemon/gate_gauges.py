"""Shows what the gates read and allow."""

from __future__ import annotations

from typing import Final

from async_processor.clock import Clock
from async_processor.daemon.topology import Topology

INTERVAL: Final = 1.0
"""Seconds between two looks at the gates."""


class GateGauges:
    """Publishes every gate's reading and budget once a second."""

    def __init__(self, topology: Topology, clock: Clock) -> None:
        self._topology = topology
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
