"""Gates over a sensor: what it reads becomes a budget, and the budget so many starts per reading.

The rule is the same for all of them: a value D in [0, 1], the room there is, closes the gate at
or below a threshold, and above it the budget is D - threshold. While the source cannot be read the
fallback budget holds, for each look that fails as for a reading; before the first look is over the
gate is closed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from async_processor.admission.base import (
    Candidate,
    Continue,
    GateState,
    Reason,
    Refuse,
    Verdict,
    WithoutLots,
)
from async_processor.admission.census import ALONE, Census, Portion
from async_processor.admission.limits import StartAllowance, own_starts, start_limit
from async_processor.admission.live_number import LiveNumber
from async_processor.admission.tickets import LocalTicket
from async_processor.clock import Clock
from async_processor.listeners import Leave, Listeners, Subscriptions
from async_processor.sensors.base import Observation, Reading, Sensor, Unreadable


class BudgetRule(msgspec.Struct, frozen=True, kw_only=True):
    """From a sensor's value to a budget.

    `saturation` says that the value is a saturation, of which 1 - value is room. `threshold` is
    in room, `fallback` is a budget. `counted` makes starts out of the capacity that came with the
    reading rather than out of the workers.
    """

    saturation: bool = False
    threshold: float = 0.0
    fallback: float = 0.0
    counted: bool = False

    def room(self, value: float) -> float:
        """D, in [0, 1]."""
        return min(1.0, max(0.0, 1.0 - value if self.saturation else value))

    def budget(self, room: float) -> float:
        """The share of the pool that may be used."""
        return room - self.threshold if room > self.threshold else 0.0

    def starts(self, reading: Reading, workers: int) -> float | None:
        """How many may start on this reading, in all replicas that share it; None: any number."""
        budget = self.budget(self.room(reading.value))
        if self.counted and reading.capacity is not None:
            return budget * reading.capacity
        return start_limit(budget, workers)


class SensorGate(WithoutLots):
    """One queue's or pool's gate over a sensor that it may share with others.

    The sensor's wake and every question put to the gate bring it up to date; nothing else writes
    its state but takers and refunds.
    """

    def __init__(
        self,
        type_name: str,
        sensor: Sensor,
        rule: BudgetRule,
        *,
        workers: LiveNumber,
        clock: Clock,
        pool: str = "",
        census: Census = ALONE,
    ) -> None:
        self._type = type_name
        self._sensor = sensor
        self._rule = rule
        self._workers = workers
        self._clock = clock
        self._pool = pool
        self._census = census
        self._share = self._current_share()
        """The part of how much that `_allowance` is."""
        self._allowance = StartAllowance()
        self._seen: Observation | None = None
        self._reading: Reading | None = None
        """The last there was, also while the source cannot be read."""
        self._held_back = 0
        self._wakes = Listeners[[]]()
        self._hears = Subscriptions(
            partial(sensor.subscribe, self._observed),
            partial(census.subscribe, self._observed),
            partial(workers.subscribe, self._observed),
        )

    async def start(self) -> None:
        self._hears.join()
        await self._sensor.start()

    async def stop(self) -> None:
        """The sensor may be others' too: whoever made it stops it."""
        self._hears.leave()

    def budget(self) -> float:
        return self._census.portion().of_budget(self._whole_budget())

    def _whole_budget(self) -> float:
        match self._look():
            case Reading(value=value):
                return self._rule.budget(self._rule.room(value))
            case Unreadable():
                return self._rule.fallback
            case None:
                return 0.0

    def permits(self, workers: int) -> int:
        self._look()
        available = self._allowance.available()
        return workers if available is None else min(workers, available)

    async def admit(self, candidate: Candidate) -> Verdict:  # noqa: ARG002 - all are alike
        self._look()
        now = self._clock.monotonic()
        if self._allowance.take(now):
            refund = partial(self._refund, now, self._held_back)
            return Continue(ticket=LocalTicket(on_refund=refund))
        self._held_back += 1
        return Refuse(reason=Reason.GATE_CLOSED, message=self._reason())

    def subscribe(self, wake: Callable[[], None]) -> Leave:
        return self._wakes.add(wake)

    def state(self) -> GateState:
        budget = self.budget()
        reading = self._reading
        return GateState(
            type=self._type,
            budget=budget,
            available=isinstance(self._seen, Reading),
            value=self._rule.room(reading.value) if reading else None,
            threshold=self._rule.threshold,
            age=self._clock.monotonic() - reading.taken_at if reading else None,
            pool=self._pool,
            reason=self._reason(),
        )

    def _look(self) -> Observation | None:
        """The sensor's latest; a new one renews the allowance, another share revises it."""
        latest, share = self._sensor.latest(), self._current_share()
        if latest is not self._seen:
            self._seen, self._share = latest, share
            self._renew(latest)
        elif share != self._share:
            self._share = share
            self._allowance.revise(self._starts(latest))
        return latest

    def _current_share(self) -> tuple[Portion, int]:
        return self._census.portion(), self._workers.value

    def _renew(self, latest: Observation | None) -> None:
        match latest:
            case Reading(taken_at=taken_at):
                self._reading = latest
                self._allowance.renew(self._starts(latest), taken_at=taken_at)
            case Unreadable(noticed_at=noticed_at):
                self._allowance.renew(self._starts(latest), taken_at=noticed_at)
            case None:
                pass

    def _starts(self, latest: Observation | None) -> float | None:
        """How many an observation lets start here; None: any number."""
        portion, workers = self._share
        match latest:
            case Reading():
                starts = self._rule.starts(latest, workers)
            case Unreadable():
                starts = start_limit(self._rule.fallback, workers)
            case None:
                starts = 0.0
        return own_starts(starts, portion, workers)

    def _observed(self) -> None:
        self._look()
        self._wakes.tell()

    def _refund(self, started_at: float, held_back_before: int) -> None:
        self._allowance.refund(started_at)
        if self._held_back != held_back_before:
            self._wakes.tell()

    def _reason(self) -> str:
        """Why the gate holds back, or what its operator should know; else empty."""
        match self._seen:
            case None:
                return "not read yet"
            case Unreadable(reason=reason):
                return reason
            case Reading() as reading if not self._rule.budget(self._rule.room(reading.value)):
                room, threshold = self._rule.room(reading.value), self._rule.threshold
                return f"the value {room:.3g} is not above {threshold:.3g}" + _noted(reading)
            case Reading() as reading if self._allowance.available() == 0:
                return "as many have started as the last reading allows" + _noted(reading)
            case Reading(note=note):
                return note


def _noted(reading: Reading) -> str:
    return f" ({reading.note})" if reading.note else ""
