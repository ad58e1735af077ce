"""A limit on the requests that this process has in flight at once."""

from __future__ import annotations

from collections.abc import Callable

from async_processor.admission.base import Continue, GateState, Reason, Refuse, Verdict, Wait
from async_processor.admission.limits import InFlightAllowance
from async_processor.admission.tickets import LocalTicket
from async_processor.wire.envelope import Envelope


class ConcurrencyGate:
    """At most `limit` at once; over it a request waits (`blocking`) or is refused."""

    def __init__(self, limit: int, *, blocking: bool) -> None:
        self._limit = limit
        self._blocking = blocking
        self._slots = InFlightAllowance(limit)
        self._wakes: list[Callable[[], None]] = []

    async def start(self) -> None:
        """Nothing to start."""

    async def stop(self) -> None:
        """Nothing to stop."""

    def budget(self) -> float:
        return self._free() / self._limit

    def permits(self, workers: int) -> int:
        return min(workers, self._free())

    async def admit(self, envelope: Envelope) -> Verdict:  # noqa: ARG002 - all are alike
        if self._slots.take():
            return Continue(
                ticket=LocalTicket(on_release=self._give_back, on_refund=self._give_back)
            )
        over = Wait if self._blocking else Refuse
        return over(reason=Reason.GATE_CLOSED, message=self._full())

    def subscribe(self, wake: Callable[[], None]) -> None:
        self._wakes.append(wake)

    def state(self) -> GateState:
        return GateState(
            type="local-max-concurrency",
            budget=self.budget(),
            reason="" if self._free() else self._full(),
        )

    def _free(self) -> int:
        return self._limit - self._slots.in_flight

    def _full(self) -> str:
        return f"all {self._limit} slots are taken"

    def _give_back(self) -> None:
        self._slots.give_back()
        for wake in self._wakes:
            wake()
