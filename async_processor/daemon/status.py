"""What `/status` tells: for each queue and pool how it stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from async_processor.admission.base import Gate
from async_processor.daemon.readiness import Readiness
from async_processor.daemon.topology import Topology
from async_processor.daemon.why import Why
from async_processor.dispatch.pool import Pool
from async_processor.dispatch.route import Route
from async_processor.errors import BacklogUnknown, BrokerUnavailable
from async_processor.settlement.held import Holdings, Phase
from async_processor.transport.base import Backlog, Transport


class Status:
    """Reads the parts when it is asked; keeps nothing."""

    def __init__(
        self,
        transport: Transport,
        topology: Topology,
        holdings: Holdings,
        readiness: Readiness,
    ) -> None:
        self._transport = transport
        self._topology = topology
        self._holdings = holdings
        self._why = Why(transport, topology, holdings, readiness)

    async def read(self) -> Mapping[str, Any]:
        """Queues and pools; what the broker cannot tell now is null."""
        return {
            "queues": [await self._queue(route) for route in self._topology.routes],
            "pools": [self._pool(pool) for pool in self._topology.pools],
        }

    async def _queue(self, route: Route) -> Mapping[str, Any]:
        backlog, fault = await self._backlog(route)
        name = route.queue.queue_name
        return {
            "queue_id": route.queue.id,
            "queue_name": name,
            "pool_name": route.pool.name,
            "backlog": backlog and backlog.waiting,
            "parked": backlog and backlog.parked,
            "inflight": self._holdings.count(Phase.IN_FLIGHT, {name}),
            "retries_due": backlog and backlog.retries_due,
            "oldest_deadline": backlog and backlog.oldest_deadline,
            "dead_letters": backlog and backlog.dead_letters,
            "gate": _gate(route.gate),
            "why": self._why.of(route, backlog, fault),
        }

    async def _backlog(self, route: Route) -> tuple[Backlog | None, str]:
        """What lies in the broker, and why that is not known."""
        try:
            return await self._transport.backlog(route.queue.queue_name, ()), ""
        except BacklogUnknown:  # it may be another service's to tell
            return None, await self._broker_fault()
        except BrokerUnavailable:
            return None, "the broker cannot be reached"

    async def _broker_fault(self) -> str:
        try:
            await self._transport.ping()
        except BrokerUnavailable as error:
            return f"the broker cannot be used: {error}"
        return ""

    def _pool(self, pool: Pool) -> Mapping[str, Any]:
        names = {route.queue.queue_name for route in self._topology.routes if route.pool is pool}
        return {
            "pool_name": pool.name,
            "workers": pool.workers,
            "inflight": self._holdings.count(Phase.IN_FLIGHT, names),
            "waiting": self._holdings.count(Phase.PARKED, names),
            "gate": _gate(pool.gate),
        }


def _gate(gate: Gate) -> Mapping[str, Any]:
    state = gate.state()
    return {
        "type": state.type,
        "value": state.value,
        "age_seconds": state.age,
        "threshold": state.threshold,
        "budget": state.budget,
        "decision": "closed" if state.budget <= 0 else "open",
        "reason": state.reason,
    }
