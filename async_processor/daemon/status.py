"""What `/status` tells: for each queue and pool how it stands, and in words what holds it back."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from async_processor.admission.base import Gate, GateState
from async_processor.daemon.occupancy import occupied
from async_processor.daemon.readiness import Readiness, Stage
from async_processor.daemon.topology import Topology
from async_processor.dispatch.pool import Pool
from async_processor.dispatch.route import Route
from async_processor.dispatch.suspects import is_suspect
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
        self._readiness = readiness

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
            "inflight": self._count(Phase.IN_FLIGHT, {name}),
            "retries_due": backlog and backlog.retries_due,
            "oldest_deadline": backlog and backlog.oldest_deadline,
            "dead_letters": backlog and backlog.dead_letters,
            "gate": _gate(route.gate),
            "why": self._why(route, backlog, fault),
        }

    async def _backlog(self, route: Route) -> tuple[Backlog | None, str]:
        """What lies in the broker, and why that is not known."""
        try:
            return await self._transport.backlog(route.queue.queue_name, ()), ""
        except BacklogUnknown:
            return None, ""
        except BrokerUnavailable:
            return None, "the broker cannot be reached"

    def _pool(self, pool: Pool) -> Mapping[str, Any]:
        names = {route.queue.queue_name for route in self._topology.routes if route.pool is pool}
        return {
            "pool_name": pool.name,
            "workers": pool.workers,
            "inflight": self._count(Phase.IN_FLIGHT, names),
            "waiting": self._count(Phase.PARKED, names),
            "gate": _gate(pool.gate),
        }

    def _count(self, phase: Phase, queue_names: Set[str]) -> int:
        return sum(
            held.phase is phase and held.delivery.queue_name in queue_names
            for held in self._holdings
        )

    def _why(self, route: Route, backlog: Backlog | None, fault: str) -> str:
        """What holds the queue back; empty when nothing does."""
        if fault:
            return fault
        if self._readiness.stage is not Stage.RUNNING:
            return f"this replica is {self._readiness.stage}"
        trouble = route.settler.trouble.words()
        if backlog is not None and not backlog.waiting + backlog.parked:
            return trouble  # what failed may wait for its next attempt, which is no backlog
        return (
            _closed("the queue's gate", route.gate.state())
            or _closed(f"the gate of pool {route.pool.name!r}", route.pool.gate.state())
            or trouble
            or occupied(route, self._topology.routes, self._holdings, self._now())
            or _spent("the queue's gate", route.gate, route.pool)
            or _spent(f"the gate of pool {route.pool.name!r}", route.pool.gate, route.pool)
            or (backlog is not None and _parked(backlog, route.gate.state()))
            or self._suspected()
        )

    def _now(self) -> float:
        return self._transport.clock.monotonic()

    def _suspected(self) -> str:
        """What waits although nothing else holds it back may have to wait for a suspect."""
        for held in self._holdings:
            if is_suspect(held.delivery):
                return (
                    "what two deliveries have left without an outcome is held one at a time, and "
                    f"a request of queue {held.delivery.queue_name!r} is now"
                )
        return ""


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


def _closed(name: str, state: GateState) -> str:
    if state.budget > 0:
        return ""
    if not state.available:
        return (
            f"{name} is closed: its source cannot be read ({state.reason}), and its fallback is 0"
        )
    if state.value is not None and state.threshold is not None:
        return f"{name} is closed: its value {state.value:.3g} is not above {state.threshold:.3g}"
    return f"{name} is closed" + (f": {state.reason}" if state.reason else "")


def _spent(name: str, gate: Gate, pool: Pool) -> str:
    """Of a gate that is open, and has given out all that it may give out at this moment."""
    if gate.permits(pool.workers) > 0:
        return ""
    state = gate.state()
    age = "" if state.age is None else f" (read {state.age:.1f} s ago)"
    return f"{name} holds back: {state.reason or 'nothing may start at this moment'}{age}"


def _parked(backlog: Backlog, state: GateState) -> str:
    if backlog.waiting:
        return ""
    return f"{backlog.parked} wait for room" + (f" ({state.reason})" if state.reason else "")
