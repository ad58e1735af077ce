"""Reads, at its interval, what lies in the broker for each queue, and remembers it."""

from __future__ import annotations

from async_processor.clock import Clock
from async_processor.daemon.topology import Topology
from async_processor.dispatch.route import Route
from async_processor.errors import BrokerUnavailable
from async_processor.telemetry.logs import get_logger
from async_processor.telemetry.series import DEADLINE_BOUNDS_MS
from async_processor.transport.base import Backlog, Transport

_log = get_logger(__name__)


class BacklogPoll:
    """Keeps the backlog metrics; a failed read shows in the availability gauge."""

    def __init__(
        self, transport: Transport, topology: Topology, clock: Clock, *, interval: float
    ) -> None:
        self._transport = transport
        self._topology = topology
        self._clock = clock
        self._interval = interval
        self._faults: dict[str, str] = {}

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            for route in self._topology.routes:
                await self._poll(route)
            await self._clock.sleep(self._interval)

    async def read(self, route: Route) -> Backlog:
        """The queue's backlog now; raises BrokerUnavailable."""
        return await self._transport.backlog(route.queue.queue_name, DEADLINE_BOUNDS_MS)

    def _tell(self, route: Route, fault: str) -> None:
        """Once for each fault: some brokers never tell."""
        if self._faults.get(route.queue.id) != fault:
            self._faults[route.queue.id] = fault
            _log.warning("backlog_not_read", queue_id=route.queue.id, error=fault)

    async def _poll(self, route: Route) -> None:
        try:
            backlog = await self.read(route)
        except BrokerUnavailable as error:
            self._tell(route, str(error))
            route.metrics.backlog(None)
        else:
            self._faults.pop(route.queue.id, None)
            route.backlog.queued, route.backlog.parked = backlog.waiting > 0, backlog.parked > 0
            route.metrics.backlog(backlog)
