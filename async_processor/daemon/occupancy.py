"""Says in words who has the places of a pool when no other request gets one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from async_processor.admission.base import Gate
from async_processor.dispatch.pool import Pool
from async_processor.dispatch.route import Route
from async_processor.settlement.held import Held, Phase


def occupied(route: Route, routes: Iterable[Route], held: Iterable[Held], now: float) -> str:
    """Why a queue gets no place in its pool; empty when it gets one. `now` is monotonic seconds.

    Requests that wait in memory at a gate keep their places, those of other queues too.
    """
    pool = route.pool
    if _has_place(route, now):
        return ""
    neighbours = {each.queue.queue_name: each for each in routes if each.pool is pool}
    stand = Counter(
        (each.phase, each.delivery.queue_name)
        for each in held
        if each.delivery.queue_name in neighbours
    )
    waiting = [
        _waiting(neighbour, stand[Phase.PARKED, name])
        for name, neighbour in neighbours.items()
        if stand[Phase.PARKED, name]
    ]
    if not waiting:
        return "" if pool.free_slots > 0 else f"{_all_workers(pool)} are busy"
    running = sum(stand[Phase.IN_FLIGHT, name] for name in neighbours)
    parts = [f"{running} in flight", *waiting] if running else waiting
    places = f"the places of pool {pool.name!r}" if pool.merge.ahead else _all_workers(pool)
    return f"{places} are taken: {', '.join(parts)}"


def _has_place(route: Route, now: float) -> bool:
    pool = route.pool
    if pool.merge.ahead and pool.merge.room(route.queue, now) <= 0:
        return False
    return pool.free_slots > 0


def _all_workers(pool: Pool) -> str:
    return f"all workers of pool {pool.name!r}"


def _waiting(route: Route, count: int) -> str:
    reason = next(_reasons(route.gate, route.pool.gate), "")
    requests = "1 request" if count == 1 else f"{count} requests"
    return (
        f"{requests} of queue {route.queue.queue_name!r} wait{'s' if count == 1 else ''} at a gate"
        + (f" ({reason})" if reason else "")
    )


def _reasons(*gates: Gate) -> Iterator[str]:
    """Of the gates that hold something back, as far as they say so."""
    for gate in gates:
        state = gate.state()
        if state.reason:
            yield state.reason
        elif state.budget <= 0:
            yield f"{state.type} is closed"
