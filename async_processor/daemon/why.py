"""Says in words what holds a queue back, and what its operator has to know besides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from async_processor.admission.base import Gate, GateState
from async_processor.daemon.occupancy import occupied
from async_processor.daemon.readiness import Readiness, Stage
from async_processor.daemon.topology import Topology
from async_processor.dispatch.pool import Pool
from async_processor.dispatch.route import Route
from async_processor.dispatch.suspects import is_suspect
from async_processor.settlement.held import Holdings, Phase
from async_processor.transport.base import Backlog, Transport


class Why:
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

    def of(self, route: Route, backlog: Backlog | None, fault: str) -> str:
        """What holds the queue back, and what goes wrong; empty when nothing does.

        `backlog` is None while it is not known, and `fault` then says why, if anything is wrong.
        """
        if fault:
            return fault
        if self._readiness.stage is not Stage.RUNNING:
            return f"this replica is {self._readiness.stage}"
        sentences = (
            self._hindrance(route, backlog),
            route.settler.trouble.missed(),
            *(_blind(name, gate.state()) for name, gate in _gates(route)),
        )
        return "; ".join(filter(None, sentences))

    def _hindrance(self, route: Route, backlog: Backlog | None) -> str:
        trouble = route.settler.trouble.words()
        if backlog is not None and not backlog.waiting + backlog.parked:
            return trouble  # what failed may wait for its next attempt, which is no backlog
        return (
            self._closed(route)
            or trouble
            or occupied(route, self._topology.routes, self._holdings, self._now())
            or _first(_spent(name, gate, route.pool) for name, gate in _gates(route))
            or (backlog is not None and _parked(backlog, route.gate.state()))
            or self._suspected()
        )

    def _now(self) -> float:
        return self._transport.clock.monotonic()

    def _closed(self, route: Route) -> str:
        closed = _first(_closed(name, gate.state()) for name, gate in _gates(route))
        waiting = self._holdings.count(Phase.PARKED, {route.queue.queue_name}) if closed else 0
        return f"{closed}; {waiting} wait in memory, in workers' places" if waiting else closed

    def _suspected(self) -> str:
        """What waits although nothing else holds it back may have to wait for a suspect."""
        for held in self._holdings:
            if is_suspect(held.delivery):
                return (
                    "what two deliveries have left without an outcome is held one at a time, and "
                    f"a request of queue {held.delivery.queue_name!r} is now"
                )
        return ""


def _gates(route: Route) -> Iterator[tuple[str, Gate]]:
    yield "the queue's gate", route.gate
    yield f"the gate of pool {route.pool.name!r}", route.pool.gate


def _first(sentences: Iterable[str]) -> str:
    return next(filter(None, sentences), "")


def _closed(name: str, state: GateState) -> str:
    if state.budget > 0:
        return ""
    if not state.available:
        return (
            f"{name} is closed: its source cannot be read ({state.reason}), and its fallback is 0"
        )
    return f"{name} is closed" + (f": {state.reason}" if state.reason else "")


def _blind(name: str, state: GateState) -> str:
    """Of a gate that lets requests through without knowing how the pool stands."""
    if state.available or state.budget <= 0:
        return ""
    return f"{name} is open although its source cannot be read ({state.reason})"


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
