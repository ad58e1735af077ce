"""A limit on the requests that this process has in flight at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from async_processor.admission.base import (
    Candidate,
    Continue,
    GateState,
    Reason,
    Refuse,
    Verdict,
    Wait,
    WithoutLots,
)
from async_processor.admission.census import ALONE, Census
from async_processor.admission.in_flight import InFlight
from async_processor.admission.live_number import LiveNumber
from async_processor.admission.portion import Portion
from async_processor.listeners import Leave, Listeners, Subscriptions


class ConcurrencyGate(WithoutLots):
    """At most `limit` at once; over it a request waits (`blocking`) or is refused."""

    def __init__(
        self,
        limit: LiveNumber,
        *,
        blocking: bool,
        census: Census = ALONE,
        in_flight: InFlight | None = None,
        type_name: str = "local-max-concurrency",
    ) -> None:
        self._type = type_name
        self._whole = limit
        self._blocking = blocking
        self._census = census
        self._in_flight = in_flight or InFlight()
        self._wakes = Listeners[[]]()
        self._hears = Subscriptions(
            partial(census.divide, self._wakes.tell, self._fits),
            partial(limit.subscribe, self._wakes.tell),
            partial(self._in_flight.subscribe, self._wakes.tell),
        )

    async def start(self) -> None:
        self._hears.join()

    async def stop(self) -> None:
        self._hears.leave()

    def budget(self) -> float:
        """What is free of the whole limit."""
        return self._free() / self._whole.value

    def permits(self, workers: int) -> int:
        return min(workers, self._free())

    async def admit(self, candidate: Candidate) -> Verdict:  # noqa: ARG002 - all are alike
        ticket = self._in_flight.take(self._limit())
        if ticket is not None:
            return Continue(ticket=ticket)
        over = Wait if self._blocking else Refuse
        return over(reason=Reason.GATE_CLOSED, message=self._full())

    def subscribe(self, wake: Callable[[], None]) -> Leave:
        return self._wakes.add(wake)

    def state(self) -> GateState:
        return GateState(
            type=self._type,
            budget=self.budget(),
            reason="" if self._free() else self._full(),
        )

    def _free(self) -> int:
        return self._in_flight.free(self._limit()) or 0

    def _full(self) -> str:
        return f"all {self._limit()} slots are taken"

    def _limit(self) -> int:
        """This replica's part of the limit."""
        return self._census.in_flight().of(self._whole.value)

    def _fits(self, portion: Portion) -> bool:
        return self._in_flight.count <= portion.of(self._whole.value)
