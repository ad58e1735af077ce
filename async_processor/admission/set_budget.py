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
from async_processor.admission.limits import InFlightAllowance, in_flight_limit
from async_processor.admission.live_number import LiveNumber
from async_processor.admission.tickets import LocalTicket
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
    ) -> None:
        self._type = type_name
        self._sensor = sensor
        self._workers = workers
        self._clock = clock
        self._census = census
        self._slots = InFlightAllowance(0)
        self._held_back = 0
        self._wakes = Listeners[[]]()
        self._hears = Subscriptions(
            partial(sensor.subscribe, self._changed),
            partial(census.subscribe, self._changed),
            partial(workers.subscribe, self._changed),
        )

    async def start(self) -> None:
        self._hears.join()

    async def stop(self) -> None:
        self._hears.leave()

    def budget(self) -> float:
        return self._census.portion().of_budget(self._whole_budget())

    def permits(self, workers: int) -> int:
        self._sensor.ask()
        available = self._look().available()
        return workers if available is None else min(workers, available)

    async def admit(self, candidate: Candidate) -> Verdict:  # noqa: ARG002 - all are alike
        self._sensor.ask()
        if self._look().take():
            refund = partial(self._refund, self._held_back)
            return Continue(ticket=LocalTicket(on_release=self._release, on_refund=refund))
        self._held_back += 1
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

    def _look(self) -> InFlightAllowance:
        """The slots under the latest reading."""
        portion = self._census.portion()
        limit = in_flight_limit(self._whole_budget(), self._workers.value)
        if limit is None and portion.is_whole:
            self._slots.limit = None
        else:
            self._slots.limit = portion.of(self._workers.value if limit is None else limit)
        return self._slots

    def _changed(self) -> None:
        before = self._slots.available()
        after = self._look().available()
        if before is not None and (after is None or after > before):
            self._wakes.tell()

    def _release(self) -> None:
        self._slots.give_back()
        self._wakes.tell()

    def _refund(self, held_back_before: int) -> None:
        self._slots.give_back()
        if self._held_back != held_back_before:
            self._wakes.tell()

    def _reason(self) -> str:
        """Why the gate holds back, or what its operator should know; else empty."""
        match self._sensor.latest():
            case None:
                return "not read yet"
            case Unreadable(reason=reason):
                return reason
            case Reading(note=note):
                limit = self._look().limit
                if self._slots.available() == 0:
                    return f"the budget {self._whole_budget():.3g} lets {limit} run at once"
                return note
