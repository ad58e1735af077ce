"""A gate over a budget that somebody sets (`redis`): at most that share of the workers at once.

Other than a reading of the pool, a budget that is set does not change with what is sent: it limits
what runs. While it cannot be read, the gate is closed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from async_processor.admission.base import (
    Candidate,
    Continue,
    GateState,
    Reason,
    Refuse,
    Verdict,
    WithoutLots,
)
from async_processor.admission.census import ALONE, Census
from async_processor.admission.in_flight import InFlight
from async_processor.admission.limits import in_flight_limit
from async_processor.admission.live_number import LiveNumber
from async_processor.admission.portion import Least, Portion
from async_processor.clock import Clock
from async_processor.listeners import Leave, Listeners, Subscriptions
from async_processor.sensors.base import Reading, Sensor, Unreadable


class Asked(Sensor, Protocol):
    """A sensor that reads more often while it is asked to."""

    def ask(self) -> None: ...


class SetBudgetGate(WithoutLots):
    """One queue's or pool's gate over a sensor that it may share with others."""

    def __init__(
        self,
        type_name: str,
        sensor: Asked,
        *,
        workers: LiveNumber,
        clock: Clock,
        census: Census = ALONE,
        in_flight: InFlight | None = None,
    ) -> None:
        self._type = type_name
        self._sensor = sensor
        self._workers = workers
        self._clock = clock
        self._census = census
        self._in_flight = in_flight or InFlight()
        self._known: int | None = 0
        """The limit when it last changed."""
        self._wakes = Listeners[[]]()
        self._hears = Subscriptions(
            partial(sensor.subscribe, self._changed),
            partial(census.divide, self._changed, self._fits),
            partial(workers.subscribe, self._changed),
            partial(self._in_flight.subscribe, self._wakes.tell),
        )

    async def start(self) -> None:
        self._hears.join()

    async def stop(self) -> None:
        self._hears.leave()

    def budget(self) -> float:
        return self._census.portion().of_budget(self._whole_budget())

    def permits(self, workers: int) -> int:
        self._sensor.ask()
        free = self._free()
        return workers if free is None else min(workers, free)

    async def admit(self, candidate: Candidate) -> Verdict:  # noqa: ARG002 - all are alike
        self._sensor.ask()
        ticket = self._in_flight.take(self._limit())
        if ticket is not None:
            return Continue(ticket=ticket)
        return Refuse(reason=Reason.GATE_CLOSED, message=self._reason())

    def subscribe(self, wake: Callable[[], None]) -> Leave:
        return self._wakes.add(wake)

    def state(self) -> GateState:
        latest = self._sensor.latest()
        reading = latest if isinstance(latest, Reading) else None
        return GateState(
            type=self._type,
            budget=self.budget(),
            available=reading is not None,
            value=self._whole_budget() if reading else None,
            threshold=0.0,
            age=self._clock.monotonic() - reading.taken_at if reading else None,
            reason=self._reason(),
        )

    def _whole_budget(self) -> float:
        latest = self._sensor.latest()
        return min(1.0, max(0.0, latest.value)) if isinstance(latest, Reading) else 0.0

    def _limit(self) -> int | None:
        """How many may run at once here; None: any number."""
        return self._limit_of(self._census.in_flight())

    def _limit_of(self, portion: Portion | Least) -> int | None:
        workers = self._workers.value
        limit = in_flight_limit(self._whole_budget(), workers)
        if limit is None and portion.is_whole:
            return None
        return portion.of(workers if limit is None else limit)

    def _fits(self, portion: Portion) -> bool:
        limit = self._limit_of(portion)
        return limit is None or self._in_flight.count <= limit

    def _free(self) -> int | None:
        return self._in_flight.free(self._limit())

    def _changed(self) -> None:
        """Wake whoever waits, if the limit has grown."""
        before, self._known = self._known, self._limit()
        if before is not None and (self._known is None or self._known > before):
            self._wakes.tell()

    def _reason(self) -> str:
        """Why the gate holds back, or what its operator should know; else empty."""
        match self._sensor.latest():
            case None:
                return "not read yet"
            case Unreadable(reason=reason):
                return reason
            case Reading(note=note):
                if self._free() == 0:
                    budget = self._whole_budget()
                    return f"the budget {budget:.3g} lets {self._limit()} run at once"
                return note
