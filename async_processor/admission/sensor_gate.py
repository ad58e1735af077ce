"""Gates over a sensor: what it reads becomes a budget, and the budget so many starts per reading.

The rule is the same for all of them: a value D in [0, 1], the room there is, closes the gate at
or below a threshold, and above it the budget is D - threshold. While the source cannot be read the
fallback budget holds, for each look that fails as for a reading; before the first look is over the
gate is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

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
from async_processor.admission.census import ALONE, Census
from async_processor.admission.limits import own_places, own_starts, start_limit
from async_processor.admission.live_number import LiveNumber
from async_processor.admission.pace import Step
from async_processor.admission.start_ledger import Start, StartAllowance
from async_processor.admission.tickets import LocalTicket
from async_processor.clock import Clock
from async_processor.listeners import Leave, Listeners, Subscriptions
from async_processor.sensors.base import Observation, Reading, Sensor, Unreadable

SPENT: Final = "as many have started as the last reading allows"
PACED: Final = "the pool is filled step by step, so that readings can follow"


class BudgetRule(msgspec.Struct, frozen=True, kw_only=True):
    """From a sensor's value to a budget.

    `saturation` says that the value is a saturation, of which 1 - value is room. `threshold` is
    in room, `fallback` is a budget. `counted` makes starts out of the capacity that came with the
    reading rather than out of the workers. A value of 1 is usually somebody's word that there is no
    limit; `measured` says that it only means an idle pool, whose room is as large as the workers.
    """

    saturation: bool = False
    threshold: float = 0.0
    fallback: float = 0.0
    counted: bool = False
    measured: bool = False

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
        if self.measured:
            return budget * workers
        return start_limit(budget, workers)


class SensorGate(WithoutLots):
    """One queue's or pool's gate over a sensor that it may share with others.

    `allowance` belongs to the ledger of that sensor, so that a reading is spent once. The sensor's
    wake and every question put to the gate bring it up to date. `interval` is how many seconds lie
    between two readings, so that a pool is filled at their pace; 0: all may start at once.
    """

    def __init__(
        self,
        type_name: str,
        sensor: Sensor,
        rule: BudgetRule,
        *,
        workers: LiveNumber,
        clock: Clock,
        allowance: StartAllowance,
        interval: float = 0.0,
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
        self._allowance = allowance
        self._interval = interval
        self._step: Step | None = None
        """How soon the latest observation lets requests start; None: all at once."""
        self._reminder: asyncio.TimerHandle | None = None
        self._seen: Observation | None = None
        self._reading: Reading | None = None
        """The last there was, also while the source cannot be read."""
        self._wakes = Listeners[[]]()
        self._hears = Subscriptions(
            partial(sensor.subscribe, self._observed),
            partial(census.subscribe, self._observed),
            partial(workers.subscribe, self._observed),
            partial(allowance.subscribe, self._wakes.tell),
        )

    async def start(self) -> None:
        self._hears.join()
        self._go_by(self._sensor.latest())

    async def stop(self) -> None:
        self._hears.leave()
        if self._reminder is not None:
            self._reminder.cancel()
            self._reminder = None

    def budget(self) -> float:
        whole = self._whole_budget()
        return whole if whole >= 1 else self._census.portion().of_budget(whole)

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
        return workers if available is None else min(workers, self._in_time(available))

    async def admit(self, candidate: Candidate) -> Verdict:
        self._look()
        start = self._take(candidate.envelope)
        if start is None:
            return Refuse(reason=Reason.GATE_CLOSED, message=self._reason())
        ticket = LocalTicket(
            on_release=partial(self._allowance.release, start),
            on_refund=partial(self._allowance.refund, start),
            on_shed=partial(self._allowance.shed, start),
        )
        return Continue(ticket=ticket)

    def _take(self, request: object) -> Start | None:
        """Who has passed another gate over the source has waited for its moment there."""
        allowance, now = self._allowance, self._clock.monotonic()
        if self._step is None or allowance.has(request):
            return allowance.take(request, now)
        start = allowance.take(request, now) if self._in_time(1) else None
        if start is not None:
            start.gap = allowance.pace.take(self._step, now)
        return start

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
        """The sensor's latest, which the allowance now goes by."""
        latest = self._sensor.latest()
        if latest is not self._seen:
            self._go_by(latest)
        return latest

    def _go_by(self, latest: Observation | None) -> None:
        """All that the allowance depends on tells of its changes (see `start`)."""
        self._seen = latest
        match latest:
            case Reading(knows_until=until):
                self._reading = latest
                self._allow(self._rule.starts(latest, self._workers.value), latest, until)
            case Unreadable(noticed_at=noticed_at):
                starts = start_limit(self._rule.fallback, self._workers.value)
                self._allow(starts, latest, noticed_at)
            case None:
                pass

    def _allow(self, starts: float | None, reading: Observation, until: float) -> None:
        own = self._own(starts)
        self._allowance.allow(own, reading=reading, knows_until=until)
        self._step = self._next_step(own)

    def _own(self, starts: float | None) -> float | None:
        """This replica's part."""
        portion = self._census.portion()
        if starts is None or portion.is_whole or not self._counted_places:
            return own_starts(starts, portion)
        return own_places(starts, portion)

    @property
    def _counted_places(self) -> bool:
        """Whether starts are places that were counted; the fallback is a share of the workers."""
        return self._rule.counted and isinstance(self._seen, Reading)

    def _next_step(self, starts: float | None) -> Step | None:
        """Free places that were counted may be taken at once, others as the pool bears it."""
        if starts is None or self._counted_places or not self._interval:
            return None
        reading = self._seen
        room = self._rule.room(reading.value) if isinstance(reading, Reading) else 1.0
        return self._allowance.pace.step(
            starts=starts,
            used=1 - room,
            limit=1 - self._rule.threshold,
            workers=own_starts(self._workers.value, self._census.portion()) or 0.0,
            interval=self._interval,
        )

    def _in_time(self, available: int) -> int:
        """How many of those that may start may do so now; the rest is called when it is time."""
        if self._step is None:
            return available
        now = self._clock.monotonic()
        room = self._allowance.pace.room(self._step, now) + self._allowance.ahead
        if room < available and self._reminder is None:
            loop = asyncio.get_running_loop()
            self._reminder = loop.call_later(self._step.tick, self._remind)
        return min(available, room)

    def _remind(self) -> None:
        self._reminder = None
        self._wakes.tell()

    def _observed(self) -> None:
        self._go_by(self._sensor.latest())
        self._wakes.tell()

    def _reason(self) -> str:
        """Why the gate holds back, or what its operator should know; else empty."""
        match self._seen:
            case None:
                return "not read yet"
            case Unreadable(reason=reason):
                return f"{reason}; {SPENT}" if self._spent() else reason
            case Reading() as reading if not self._rule.budget(self._rule.room(reading.value)):
                room, threshold = self._rule.room(reading.value), self._rule.threshold
                return f"room {room:.3g} is not above {threshold:.3g}" + _noted(reading)
            case Reading() as reading if self._spent():
                return SPENT + _noted(reading)
            case Reading() as reading if self._paced():
                return PACED + _noted(reading)
            case Reading(note=note):
                return note

    def _paced(self) -> bool:
        """Whether there is no room for one more before the next reading, or before its time."""
        if self._step is None:
            return False
        return not self._allowance.pace.room(self._step, self._clock.monotonic())

    def _spent(self) -> bool:
        """Whether an open gate lets nothing start before the next reading."""
        return self.budget() > 0 and self._allowance.available() == 0


def _noted(reading: Reading) -> str:
    return f" ({reading.note})" if reading.note else ""
