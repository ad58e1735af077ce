"""Shows where the deliveries of a queue stand."""

from __future__ import annotations

from async_processor.settlement.held import Phase
from async_processor.telemetry.metrics import Metrics, QueueMetrics


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
