"""Gates over a sensor: what is read becomes a budget, and the budget becomes so many starts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from async_processor.admission.base import Continue, Reason, Refuse
from async_processor.admission.chain import Chain
from async_processor.admission.live_number import LiveNumber
from async_processor.admission.pace import FEW
from async_processor.admission.sensor_gate import BudgetRule, SensorGate
from async_processor.admission.start_ledger import StartAllowance, StartLedger
from async_processor.listeners import Leave, Listeners
from async_processor.sensors.base import Observation, Reading, Unreadable
from async_processor.testing.candidates import candidate
from async_processor.testing.clock import ManualClock


class Dial:
    """A sensor that a test sets."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._latest: Observation | None = None
        self._wakes = Listeners[[]]()
        self.started = 0

    async def start(self) -> None:
        self.started += 1

    async def stop(self) -> None:
        raise AssertionError("a gate must not stop a sensor that others may use")

    def latest(self) -> Observation | None:
        return self._latest

    def subscribe(self, wake: Callable[[], None]) -> Leave:
        return self._wakes.add(wake)

    def turn(
        self, value: float, capacity: float | None = None, *, lag: float = 0, note: str = ""
    ) -> None:
        now = self._clock.monotonic()
        self._set(Reading(value=value, capacity=capacity, taken_at=now, lag=lag, note=note))

    def lose(self, reason: str = "connection refused") -> None:
        self._set(Unreadable(reason=reason, noticed_at=self._clock.monotonic()))

    def _set(self, observation: Observation) -> None:
        self._latest = observation
        self._wakes.tell()


class Bench:
    """A gate over a dial, and a way to count what gets through."""

    def __init__(self, workers: int = 10, interval: float = 0, **rule: float) -> None:
        self.clock = ManualClock()
        self.dial = Dial(self.clock)
        self.ledger = StartLedger()
        self.workers = workers
        self.interval = interval
        self.gate = self.another(workers, **rule)

    def another(self, workers: int, **rule: float) -> SensorGate:
        return SensorGate(
            "prometheus-query",
            self.dial,
            BudgetRule(**rule),  # type: ignore[arg-type]
            workers=LiveNumber(workers),
            clock=self.clock,
            allowance=StartAllowance(self.ledger),
            interval=self.interval,
            pool="p",
        )

    async def admitted(self, gate: SensorGate | None = None, demand: int = 50) -> int:
        verdicts = [await (gate or self.gate).admit(candidate()) for _ in range(demand)]
        return sum(isinstance(verdict, Continue) for verdict in verdicts)


async def test_open_partly_and_closed() -> None:
    bench = Bench()
    bench.dial.turn(1.0)
    assert bench.gate.permits(10) == 10
    assert await bench.admitted() == 50  # the workers are the only limit
    await bench.clock.advance(1)
    bench.dial.turn(0.3)
    assert (bench.gate.budget(), bench.gate.permits(10)) == (0.3, 3)
    assert await bench.admitted() == 3
    await bench.clock.advance(1)
    bench.dial.turn(0.0)
    assert (bench.gate.budget(), bench.gate.permits(10)) == (0.0, 0)
    assert await bench.admitted() == 0


async def test_a_refusal_says_why() -> None:
    bench = Bench(threshold=0.2)
    bench.dial.turn(0.15)
    verdict = await bench.gate.admit(candidate())
    assert isinstance(verdict, Refuse)
    assert verdict.reason is Reason.GATE_CLOSED
    assert verdict.message == "room 0.15 is not above 0.2"


async def test_what_was_admitted_counts_against_the_reading() -> None:
    bench = Bench()
    bench.dial.turn(0.5)
    assert await bench.admitted(demand=2) == 2
    assert bench.gate.permits(10) == 3
    assert bench.gate.budget() == 0.5  # the gate's own figure


async def test_permits_never_exceed_the_workers_asked_about() -> None:
    bench = Bench(workers=100)
    bench.dial.turn(0.5)
    assert bench.gate.permits(4) == 4


async def test_a_saturation_gate_closes_at_its_threshold() -> None:
    # Saturation threshold 0.8: room 0.2; fallback saturation 1.0: no budget.
    bench = Bench(saturation=True, threshold=1 - 0.8, fallback=0.0)
    for saturation, budget in ((0.0, 0.8), (0.5, 0.3), (0.8, 0.0), (1.7, 0.0)):
        bench.dial.turn(saturation)
        assert bench.gate.budget() == pytest.approx(budget)
        state = bench.gate.state()
        assert state.value == pytest.approx(max(0.0, 1 - saturation))
        assert state.threshold == pytest.approx(0.2)


async def test_values_out_of_range_are_clamped() -> None:
    bench = Bench()
    bench.dial.turn(1.5)
    assert bench.gate.budget() == 1.0
    bench.dial.turn(-3)
    assert bench.gate.budget() == 0.0


async def test_before_the_first_look_the_gate_is_closed_whatever_its_fallback() -> None:
    bench = Bench(fallback=1.0)
    assert bench.gate.budget() == 0.0
    assert await bench.admitted() == 0
    state = bench.gate.state()
    assert (state.available, state.value, state.reason) == (False, None, "not read yet")


async def test_a_lost_source_means_the_fallback_for_each_look_that_fails() -> None:
    bench = Bench(fallback=0.5)
    bench.dial.turn(0.9)
    await bench.admitted()
    for _ in range(3):
        await bench.clock.advance(1)
        bench.dial.lose()
        assert bench.gate.budget() == 0.5
        assert await bench.admitted() == 5
        assert await bench.admitted() == 0


async def test_a_lost_source_leaves_the_last_value_standing_and_says_so() -> None:
    bench = Bench()
    await bench.gate.start()
    bench.dial.turn(0.7)
    await bench.clock.advance(4)
    bench.dial.lose("connection refused")
    state = bench.gate.state()
    assert (state.value, state.age, state.available) == (0.7, 4.0, False)
    assert (state.budget, state.reason, state.pool) == (0.0, "connection refused", "p")


async def test_gates_over_one_sensor_spend_its_readings_together() -> None:
    bench = Bench(workers=10)
    other = bench.another(14)
    bench.dial.turn(0.5)
    assert await bench.admitted() == 5
    assert (bench.gate.permits(10), other.permits(14)) == (0, 2)
    assert await bench.admitted(other) == 2
    await bench.clock.advance(1)
    bench.dial.turn(0.5)
    assert await bench.admitted(other) == 7
    assert await bench.admitted() == 0
    await bench.gate.start()
    await other.start()
    await other.stop()  # and the dial, which is not the gate's, goes on


async def test_a_request_that_passes_two_gates_over_one_sensor_counts_once() -> None:
    bench = Bench(workers=10)
    chain = Chain([bench.gate, bench.another(6)])
    await chain.start()
    bench.dial.turn(0.5)
    verdicts = [await chain.admit(candidate()) for _ in range(5)]
    assert [type(verdict) for verdict in verdicts] == [Continue] * 3 + [Refuse] * 2
    assert bench.gate.permits(10) == 2
    assert isinstance(verdicts[0], Continue)
    verdicts[0].ticket.refund()
    assert (bench.gate.permits(10), chain.permits(10)) == (3, 1)


async def test_a_refund_wakes_whom_another_gate_over_the_sensor_held_back() -> None:
    bench, woken = Bench(), list[str]()
    bench.dial.turn(0.1)
    other = bench.another(10)
    for name, gate in (("first", bench.gate), ("other", other)):
        await gate.start()
        gate.subscribe(partial(woken.append, name))
    verdict = await bench.gate.admit(candidate())
    assert isinstance(verdict, Continue)
    assert await bench.admitted(other, demand=1) == 0
    verdict.ticket.refund()
    assert woken == ["other"]


async def test_a_lost_source_whose_fallback_is_spent_says_both() -> None:
    bench = Bench(fallback=0.1)
    bench.dial.lose("connection refused")
    assert bench.gate.state().reason == "connection refused"
    assert await bench.admitted() == 1
    assert bench.gate.state().reason == (
        "connection refused; as many have started as the last reading allows"
    )


async def test_a_reading_is_spent_once_however_often_the_gate_is_asked() -> None:
    bench = Bench()
    bench.dial.turn(0.25)
    for _ in range(5):
        bench.gate.state()
        bench.gate.budget()
        bench.gate.permits(10)
    assert await bench.admitted() == 2
    assert bench.gate.state().reason == "as many have started as the last reading allows"


async def test_the_gate_wakes_on_readings_losses_and_refunds() -> None:
    bench, woken = Bench(), list[float]()
    await bench.gate.start()
    bench.gate.subscribe(lambda: woken.append(bench.gate.permits(10)))
    bench.dial.turn(0.1)
    verdict = await bench.gate.admit(candidate())
    assert isinstance(verdict, Continue)
    assert await bench.admitted(demand=1) == 0  # held back, and to be woken
    verdict.ticket.refund()
    verdict.ticket.refund()
    verdict.ticket.release()
    bench.dial.lose()
    bench.dial.turn(1.0)
    assert woken == [1, 1, 0, 10]


async def test_a_refund_wakes_nobody_when_nobody_was_held_back_meanwhile() -> None:
    bench, woken = Bench(), list[str]()
    bench.dial.turn(0.1)
    bench.gate.subscribe(lambda: woken.append("woken"))
    verdict = await bench.gate.admit(candidate())
    assert isinstance(verdict, Continue)
    verdict.ticket.refund()
    assert woken == []
    assert bench.gate.permits(10) == 1


async def test_a_release_gives_nothing_back_because_the_request_did_start() -> None:
    bench = Bench()
    bench.dial.turn(0.1)
    verdict = await bench.gate.admit(candidate())
    assert isinstance(verdict, Continue)
    verdict.ticket.release()
    assert await bench.admitted() == 0


async def test_counted_admission_gives_out_the_free_slots_of_the_pods() -> None:
    bench = Bench(workers=100, saturation=True, counted=True)
    bench.dial.turn(60 / 64, capacity=64)
    assert await bench.admitted() == 4
    await bench.clock.advance(1)
    bench.dial.turn(0.0, capacity=64)
    assert await bench.admitted(demand=100) == 64  # an empty pool has 64 slots, and no more


async def test_what_has_just_started_is_not_in_a_reading_that_lags_behind() -> None:
    bench = Bench(workers=100, counted=True)
    bench.dial.turn(1.0, capacity=6, lag=0.5)
    assert await bench.admitted(demand=2) == 2
    await bench.clock.advance(0.4)
    bench.dial.turn(1.0, capacity=6, lag=0.5)
    assert await bench.admitted() == 4  # all six run, though the pods still look idle
    await bench.clock.advance(0.4)
    bench.dial.turn(4 / 6, capacity=6, lag=0.5)  # the first two show
    assert await bench.admitted() == 0
    await bench.clock.advance(0.6)
    bench.dial.turn(1 / 6, capacity=6, lag=0.5)  # and one of the six has ended
    assert await bench.admitted() == 1


async def test_places_that_nobody_could_count_are_filled_step_by_step() -> None:
    bench = Bench(workers=100, interval=1, counted=True, fallback=0.5)
    bench.dial.turn(1.0, capacity=64)
    assert await bench.admitted(demand=100) == 64
    await bench.clock.advance(1)
    bench.dial.lose()
    assert await bench.admitted(demand=100) == FEW
    await bench.gate.stop()


async def test_whom_a_later_gate_refuses_costs_others_no_start_where_starts_are_spread() -> None:
    bench = Bench(workers=100, interval=1)
    bench.dial.turn(1.0)
    await bench.clock.advance(1)
    bench.dial.turn(0.9)
    for _ in range(50):
        verdict = await bench.gate.admit(candidate())
        assert isinstance(verdict, Continue), "a tenant without room holds nobody up"
        verdict.ticket.refund()
    assert await bench.admitted() == FEW
    await bench.gate.stop()


async def test_a_reading_that_is_only_half_of_the_truth_says_so() -> None:
    bench = Bench()
    bench.dial.turn(0.5, note="1 of 2 pages: http://b: connection refused")
    state = bench.gate.state()
    assert state.available
    assert state.reason == "1 of 2 pages: http://b: connection refused"
