"""What replicas divide among them: portions add up to the whole exactly, whoever joins takes
nothing too soon, and whoever cannot read the roll takes no more than before."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_processor.admission.base import Continue, Gate
from async_processor.admission.build import GateContext, build_gate
from async_processor.admission.census import (
    ALONE,
    JOIN_SECONDS,
    RENEW_SECONDS,
    RETRY_SECONDS,
    Census,
    Fits,
    RollCensus,
)
from async_processor.admission.concurrency import ConcurrencyGate
from async_processor.admission.limits import own_places, own_starts
from async_processor.admission.live_number import LiveNumber
from async_processor.admission.portion import NOTHING, WHOLE, Least, Portion, least
from async_processor.admission.sensor_gate import BudgetRule, SensorGate
from async_processor.admission.set_budget import SetBudgetGate
from async_processor.admission.settings import (
    CompositeGate,
    ConstantGate,
    LocalMaxConcurrencyGate,
    WaitOnRefuseGate,
)
from async_processor.admission.start_ledger import StartAllowance, StartLedger
from async_processor.errors import BrokerUnavailable
from async_processor.listeners import Leave, Listeners, nobody_tells
from async_processor.redis_io.roll import Seen
from async_processor.sensors.base import Observation, Reading, Unreadable
from async_processor.testing.candidates import candidate
from async_processor.testing.clock import ManualClock


def portions(replicas: int) -> list[Portion]:
    return [Portion(replicas=replicas, rank=rank) for rank in range(replicas)]


@given(st.integers(0, 10_000), st.integers(1, 50))
def test_portions_add_up_to_the_whole_and_differ_by_one_at_most(whole: int, replicas: int) -> None:
    shares = [portion.of(whole) for portion in portions(replicas)]
    assert sum(shares) == whole
    assert max(shares) - min(shares) <= 1
    assert shares == sorted(shares, reverse=True)


def fresh_allowance() -> StartAllowance:
    return StartAllowance(StartLedger())


@given(st.floats(0, 500), st.integers(1, 9))
def test_starts_add_up_over_replicas_and_readings(starts: float, replicas: int) -> None:
    readings, alone, started = 20, fresh_allowance(), 0
    together = [fresh_allowance() for _ in range(replicas)]

    def all_that_may(allowance: StartAllowance, now: float) -> int:
        count = 0
        while count < 600 and allowance.take(object(), now):
            count += 1
        return count

    wanted = 0
    for reading in range(readings):
        alone.allow(starts, reading=object(), knows_until=reading)
        wanted += all_that_may(alone, reading)
        for allowance, portion in zip(together, portions(replicas), strict=True):
            own = own_starts(starts, portion)
            allowance.allow(own, reading=object(), knows_until=reading)
            started += all_that_may(allowance, reading)
    assert wanted - replicas <= started <= wanted  # each keeps a fraction of a start


def test_of_any_number_of_starts_there_is_nothing_to_divide() -> None:
    assert [own_starts(None, portion) for portion in (WHOLE, NOTHING, *portions(2))] == [None] * 4
    assert own_starts(9.0, NOTHING) == 0
    assert [own_starts(9.0, portion) for portion in portions(2)] == [4.5, 4.5]
    assert (NOTHING.of(9), NOTHING.of_budget(0.5)) == (0, 0.0)


class Paper:
    """A roll that a test writes."""

    def __init__(self, clock: ManualClock) -> None:
        self.says: tuple[int, int] | Exception = (1, 0)
        self.agreed = True
        self.others_for = 0.0
        """For how many seconds the others had been there when this one came."""
        self.renewed = 0
        self.left = 0
        self.kept = ""
        self._clock = clock
        self._came: float | None = None

    def lose(self) -> None:
        """Forget that the replica was there."""
        self._came = None

    async def renew(self, kept: str) -> Seen:
        self.renewed += 1
        self.kept = kept
        if isinstance(self.says, Exception):
            raise self.says
        replicas, rank = self.says
        if self._came is None:
            self._came = self._clock.monotonic()
        age = self._clock.monotonic() - self._came
        return Seen(
            replicas=replicas,
            rank=rank,
            roster=str(self.says),
            agreed=self.agreed,
            age=age,
            oldest=age + self.others_for,
        )

    async def leave(self) -> None:
        self.left += 1
        if isinstance(self.says, Exception):
            raise self.says


class Bench:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.roll = Paper(self.clock)
        self.census = RollCensus(self.roll, self.clock)
        self.seen: list[Portion] = []
        self.census.subscribe(lambda: self.seen.append(self.census.portion()))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.census.run())
        await self.clock.advance(0)
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    @asynccontextmanager
    async def joined(self) -> AsyncIterator[None]:
        """Run, and have been on the roll for long enough."""
        async with self.running():
            await self.clock.advance(2 * RENEW_SECONDS)
            yield


async def test_who_is_alone_has_everything_when_nobody_has_come_back_to_a_lost_roll() -> None:
    bench = Bench()
    async with bench.running():
        await bench.clock.advance(JOIN_SECONDS - 0.01)
        assert bench.census.portion() == NOTHING
        assert bench.census.in_flight().of(4) == 0
        await bench.clock.advance(RENEW_SECONDS)
        assert bench.census.portion() == WHOLE
        assert bench.census.in_flight() == least(WHOLE)
        assert bench.seen == [NOTHING, WHOLE]


async def test_who_joins_takes_nothing_until_the_others_have_noticed() -> None:
    bench = Bench()
    bench.roll.says = (3, 1)
    async with bench.running():
        assert bench.census.portion() == NOTHING
        await bench.clock.advance(JOIN_SECONDS - 0.01)
        assert bench.census.portion() == NOTHING
        await bench.clock.advance(RENEW_SECONDS)
        assert bench.census.portion() == Portion(replicas=3, rank=1)


async def test_who_is_there_notices_at_the_next_look_who_joins_and_who_is_gone() -> None:
    bench = Bench()
    async with bench.joined():
        bench.roll.says = (2, 0)
        await bench.clock.advance(RENEW_SECONDS)
        assert bench.census.portion() == Portion(replicas=2, rank=0)
        bench.roll.says = (1, 0)
        await bench.clock.advance(RENEW_SECONDS)
        assert bench.census.portion() == WHOLE


async def test_an_unreadable_roll_leaves_the_portion_as_it_was() -> None:
    bench = Bench()
    async with bench.joined():
        bench.roll.says = (4, 2)
        await bench.clock.advance(RENEW_SECONDS)
        bench.roll.says = BrokerUnavailable("gone")
        await bench.clock.advance(20 * RENEW_SECONDS)
        assert bench.census.portion() == Portion(replicas=4, rank=2)


async def test_a_roll_that_was_never_readable_gives_nothing() -> None:
    bench = Bench()
    bench.roll.says = BrokerUnavailable("gone")
    async with bench.running():
        await bench.clock.advance(20 * RENEW_SECONDS)
        assert bench.census.portion() == NOTHING
    assert bench.roll.left == 1  # and a roll that cannot be reached does not keep it


async def test_after_a_loss_of_the_roll_nobody_takes_more_until_the_others_are_back() -> None:
    bench = Bench()
    bench.roll.says = (3, 1)
    async with bench.joined():
        bench.roll.lose()
        bench.roll.says = (1, 0)
        await bench.clock.advance(JOIN_SECONDS)
        assert bench.census.portion() == Portion(replicas=3, rank=1)
        assert bench.census.in_flight().of(6) == 2
        bench.roll.says = (4, 2)  # who has come first takes less at once
        await bench.clock.advance(0.5 * RENEW_SECONDS)
        assert bench.census.portion() == Portion(replicas=4, rank=2)
        assert bench.census.in_flight().of(6) == 1


async def test_a_roll_that_is_lost_again_and_again_lets_nobody_take_more() -> None:
    bench = Bench()
    bench.roll.says = (2, 0)
    async with bench.joined():
        bench.roll.says = (1, 0)
        for _ in range(5):
            bench.roll.lose()
            await bench.clock.advance(RENEW_SECONDS)
            assert bench.census.portion() == Portion(replicas=2, rank=0)
            assert bench.census.in_flight().of(4) == 2


async def test_who_has_been_away_joins_anew_where_others_may_have_its_part() -> None:
    bench = Bench()
    bench.roll.says = (2, 0)
    async with bench.joined():
        bench.roll.lose()
        bench.roll.others_for = JOIN_SECONDS
        await bench.clock.advance(RENEW_SECONDS)
        assert bench.census.portion() == NOTHING
        assert bench.census.in_flight().of(4) == 0
        await bench.clock.advance(2 * RENEW_SECONDS)
        assert bench.census.portion() == Portion(replicas=2, rank=0)
        assert bench.census.in_flight().of(4) == 2


async def test_a_roll_that_can_be_read_again_is_read_soon() -> None:
    bench = Bench()
    async with bench.joined():
        bench.roll.says = BrokerUnavailable("gone")
        await bench.clock.advance(5 * RENEW_SECONDS)
        bench.roll.says = (2, 0)
        await bench.clock.advance(RETRY_SECONDS)
        assert bench.census.portion() == Portion(replicas=2, rank=0)


async def test_who_stops_leaves_at_once() -> None:
    bench = Bench()
    async with bench.running():
        assert bench.roll.left == 0
    assert bench.roll.left == 1


class Slots:
    """A gate that divides a limit, as far as the census goes."""

    def __init__(self, census: RollCensus) -> None:
        self.running = 0
        census.divide(lambda: None, lambda portion: self.running <= portion.of(4))


async def test_a_larger_part_of_what_may_run_waits_for_all_the_others() -> None:
    bench = Bench()
    bench.roll.says, bench.roll.agreed = (2, 0), False
    async with bench.running():
        await bench.clock.advance(10 * RENEW_SECONDS)
        assert bench.census.portion() == Portion(replicas=2, rank=0)  # readings do not wait
        assert bench.census.in_flight().of(4) == 0
        bench.roll.agreed = True
        await bench.clock.advance(RENEW_SECONDS)
        assert bench.census.in_flight().of(4) == 2
        bench.roll.says, bench.roll.agreed = (1, 0), False
        await bench.clock.advance(RENEW_SECONDS)
        assert bench.census.in_flight().of(4) == 2


async def test_a_smaller_part_counts_at_once_and_is_kept_to_when_enough_has_ended() -> None:
    bench = Bench()
    slots = Slots(bench.census)
    async with bench.joined():
        slots.running = 4
        bench.roll.says = (2, 0)
        await bench.clock.advance(RENEW_SECONDS)
        assert bench.census.in_flight().of(4) == 2
        await bench.clock.advance(RENEW_SECONDS)
        assert bench.roll.kept == ""
        slots.running = 2
        await bench.clock.advance(RENEW_SECONDS)
        assert bench.roll.kept == "(2, 0)"


async def test_without_a_gate_that_is_shared_nothing_is_asked() -> None:
    clock = ManualClock()
    roll = Paper(clock)
    task = asyncio.create_task(RollCensus(roll, clock).run())
    await clock.advance(60)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (roll.renewed, roll.left) == (0, 0)


async def test_who_only_looks_is_no_replica_and_sees_the_whole() -> None:
    bench = Bench()
    assert bench.census.portion() == WHOLE
    assert bench.roll.renewed == 0


class Fixed:
    """A census that a test sets."""

    def __init__(self, portion: Portion) -> None:
        self._portion = portion
        self._changed = Listeners[[]]()

    def portion(self) -> Portion:
        return self._portion

    def subscribe(self, changed: Callable[[], None]) -> Leave:
        return self._changed.add(changed)

    def in_flight(self) -> Least:
        return least(self._portion)

    def divide(self, changed: Callable[[], None], fits: Fits) -> Leave:
        return self._changed.add(changed)

    def set(self, portion: Portion) -> None:
        self._portion = portion
        self._changed.tell()


class Dial:
    """A sensor with one reading at a time."""

    def __init__(self, value: float, capacity: float | None = None) -> None:
        self.turn(value, capacity)

    def turn(self, value: float, capacity: float | None = None, *, at: float = 0.0) -> None:
        self._reading = Reading(value=value, capacity=capacity, taken_at=at)

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    def ask(self) -> None:
        pass

    def latest(self) -> Observation:
        return self._reading

    def subscribe(self, wake: Callable[[], None]) -> Leave:
        return nobody_tells


class Blind(Dial):
    """A sensor that cannot read its source."""

    def __init__(self) -> None:
        self.look_again(at=0)

    def look_again(self, *, at: float) -> None:
        self._unreadable = Unreadable(reason="nobody answers", noticed_at=at)

    def latest(self) -> Observation:
        return self._unreadable


def over(
    dial: Dial,
    workers: LiveNumber,
    census: Census = ALONE,
    *,
    counted: bool = False,
    fallback: float = 0.0,
) -> SensorGate:
    return SensorGate(
        "t",
        dial,
        BudgetRule(counted=counted, fallback=fallback),
        workers=workers,
        clock=ManualClock(),
        allowance=fresh_allowance(),
        census=census,
    )


def by_reading(value: float, census: Census) -> SensorGate:
    return over(Dial(value), LiveNumber(10), census)


def by_key(value: float, census: Census) -> SetBudgetGate:
    return SetBudgetGate(
        "t", Dial(value), workers=LiveNumber(10), clock=ManualClock(), census=census
    )


def by_limit(value: float, census: Census) -> ConcurrencyGate:
    return ConcurrencyGate(LiveNumber(round(10 * value)), blocking=False, census=census)


async def started(gate: Gate, demand: int = 100) -> int:
    verdicts = [await gate.admit(candidate()) for _ in range(demand)]
    return sum(isinstance(verdict, Continue) for verdict in verdicts)


@pytest.mark.parametrize(
    ("make", "replicas", "value", "whole"),
    [
        *itertools.product((by_reading, by_key, by_limit), (2, 4), (0.8,), (8,)),
        *itertools.product((by_key, by_limit), (2,), (1.0,), (10,)),
    ],
)
async def test_what_gates_of_all_replicas_let_start_adds_up_to_the_whole(
    make: Callable[[float, Census], Gate], replicas: int, value: float, whole: int
) -> None:
    gates = [make(value, Fixed(portion)) for portion in portions(replicas)]
    assert sum(gate.permits(10) for gate in gates) == whole
    assert sum([await started(gate) for gate in gates]) == whole


@pytest.mark.parametrize(("free", "each"), [(6, [3, 3]), (5, [3, 2]), (1, [1, 0]), (0, [0, 0])])
async def test_places_that_were_counted_are_divided_whole(free: float, each: list[int]) -> None:
    dials = [Dial(1 / 6 * free, capacity=6) for _ in each]
    gates = [
        over(dial, LiveNumber(10), Fixed(portion), counted=True)
        for dial, portion in zip(dials, portions(2), strict=True)
    ]
    for _ in range(3):  # nothing is left over from one reading to the next
        assert [gate.permits(10) for gate in gates] == each
        for dial in dials:
            dial.turn(1 / 6 * free, capacity=6)


async def test_less_than_a_place_is_slow_and_not_zero_and_one_replicas_alone() -> None:
    dials = [Dial(0.1, capacity=6) for _ in range(2)]
    gates = [
        over(dial, LiveNumber(10), Fixed(portion), counted=True)
        for dial, portion in zip(dials, portions(2), strict=True)
    ]
    by_each = [0, 0]
    for second in range(50):
        for number, gate in enumerate(gates):
            dials[number].turn(0.1, capacity=6, at=second)
            by_each[number] += await started(gate)
    assert by_each == [pytest.approx(0.6 * 50, abs=1), 0]


@given(st.floats(0, 100), st.integers(1, 8))
def test_places_add_up_over_replicas(places: float, replicas: int) -> None:
    parts = [own_places(places, portion) for portion in portions(replicas)]
    assert sum(parts) == pytest.approx(places)
    assert sum(part % 1 > 1e-6 for part in parts) <= 1
    assert own_places(places, NOTHING) == 0


async def test_the_fallback_of_a_gate_that_counts_places_is_divided_like_any_other() -> None:
    portion = Portion(replicas=2, rank=1)
    dial = Blind()
    gate = over(dial, LiveNumber(10), Fixed(portion), counted=True, fallback=0.05)
    count = 0
    for second in range(9):
        dial.look_again(at=second)
        count += await started(gate)
    assert count == 2


@pytest.mark.parametrize("portion", [*portions(2), NOTHING])
async def test_a_full_budget_sets_no_limit_per_reading_that_replicas_could_divide(
    portion: Portion,
) -> None:
    gate = by_reading(1.0, Fixed(portion))
    assert (gate.budget(), gate.permits(10)) == (1.0, 10)
    assert await started(gate, demand=50) == 50


@pytest.mark.parametrize("make", [by_key, by_limit])
async def test_what_cannot_be_divided_goes_to_the_first(
    make: Callable[[float, Census], Gate],
) -> None:
    gates = [make(0.8, Fixed(portion)) for portion in portions(3)]
    assert [gate.permits(10) for gate in gates] == [3, 3, 2]


@pytest.mark.parametrize("make", [by_reading, by_key, by_limit])
async def test_another_portion_counts_at_once_and_wakes(
    make: Callable[[float, Census], Gate],
) -> None:
    census = Fixed(NOTHING)
    gate = make(0.8, census)
    await gate.start()
    woken: list[int] = []
    gate.subscribe(lambda: woken.append(gate.permits(10)))
    assert (gate.permits(10), gate.budget()) == (0, 0.0)
    census.set(Portion(replicas=2, rank=0))
    assert gate.permits(10) == 4
    census.set(WHOLE)
    assert gate.permits(10) == 8
    assert woken == [4, 8]


def half_by_reading(workers: LiveNumber) -> Gate:
    return over(Dial(0.5), workers)


def half_by_key(workers: LiveNumber) -> Gate:
    return SetBudgetGate("t", Dial(0.5), workers=workers, clock=ManualClock())


def half_of_the_workers(workers: LiveNumber) -> Gate:
    return ConcurrencyGate(workers, blocking=False, census=Fixed(Portion(replicas=2, rank=0)))


@pytest.mark.parametrize("make", [half_by_reading, half_by_key, half_of_the_workers])
async def test_a_pool_that_changes_its_size_counts_at_once_and_nothing_starts_twice(
    make: Callable[[LiveNumber], Gate],
) -> None:
    workers, woken = LiveNumber(10), list[int]()
    gate = make(workers)
    await gate.start()
    assert await started(gate) == 5
    gate.subscribe(lambda: woken.append(gate.permits(100)))
    workers.set(20)
    assert woken == [5]
    for number in (4, 20, 4, 20):
        workers.set(number)
    assert await started(gate) == 5
    workers.set(4)
    assert gate.permits(100) == 0


async def test_a_size_that_flickers_gives_no_fraction_twice() -> None:
    workers = LiveNumber(10)
    gate = over(Dial(0.25), workers)
    await gate.start()
    for number in (11, 10) * 10:
        workers.set(number)
        gate.permits(number)
    assert await started(gate) == 2


async def test_the_budget_shown_is_the_replicas_own() -> None:
    half = Fixed(Portion(replicas=2, rank=1))
    assert by_reading(0.8, half).budget() == pytest.approx(0.4)
    assert by_key(0.8, half).budget() == pytest.approx(0.4)


def test_gates_of_gates_share_what_is_in_them() -> None:
    context = GateContext(
        prometheus=None, clock=ManualClock(), redis_url="redis://nowhere", queue_name="q"
    )
    assert context.roll is not None
    context.roll._in_flight = least(Portion(replicas=2, rank=1))
    inner = (LocalMaxConcurrencyGate(limit=5), ConstantGate())
    shared = WaitOnRefuseGate(gate=CompositeGate(gates=inner), shared=True)
    assert build_gate(shared, context, workers=LiveNumber(8)).permits(8) == 2
    assert build_gate(ConstantGate(shared=True), context, workers=LiveNumber(9)).permits(9) == 4
    own = CompositeGate(gates=(LocalMaxConcurrencyGate(limit=5, shared=True), ConstantGate()))
    assert build_gate(own, context, workers=LiveNumber(8)).permits(8) == 2
    assert build_gate(CompositeGate(gates=inner), context, workers=LiveNumber(8)).permits(8) == 5


def test_a_replica_without_a_roll_is_alone() -> None:
    context = GateContext(prometheus=None, clock=ManualClock())
    gate = build_gate(LocalMaxConcurrencyGate(limit=5, shared=True), context, workers=LiveNumber(8))
    assert gate.permits(8) == 5
