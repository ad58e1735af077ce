"""Gates made of gates: all or nothing through a composite, and refusals that become waiting."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from async_processor.admission.base import (
    Candidate,
    Continue,
    Drop,
    GateState,
    Reason,
    Refuse,
    Verdict,
    Wait,
    WithoutLots,
)
from async_processor.admission.build import GateContext, build_gate
from async_processor.admission.chain import Chain
from async_processor.admission.concurrency import ConcurrencyGate
from async_processor.admission.live_number import LiveNumber
from async_processor.admission.patience import Patience
from async_processor.admission.settings import (
    CompositeGate,
    LocalMaxConcurrencyGate,
    WaitOnRefuseGate,
)
from async_processor.clock import SystemClock
from async_processor.listeners import Leave, nobody_tells
from async_processor.testing.candidates import CANDIDATE

REFUSE = Refuse(reason=Reason.QUOTA_EXHAUSTED, message="enough")
WAIT = Wait(reason=Reason.GATE_CLOSED, message="later")
DROP = Drop(message="no")


class Scripted(WithoutLots):
    """A gate that says one thing and writes down what happens to its tickets."""

    def __init__(
        self, says: Verdict | Exception | None = None, *, state: GateState | None = None
    ) -> None:
        self._says = says
        self._state = state or GateState(type="scripted", budget=1.0)
        self.events: list[str] = []
        self.wake: Callable[[], None] = lambda: None

    async def start(self) -> None:
        self.events.append("start")

    async def stop(self) -> None:
        self.events.append("stop")

    def budget(self) -> float:
        return self._state.budget

    def permits(self, workers: int) -> int:
        return int(workers * self._state.budget)

    async def admit(self, candidate: Candidate) -> Verdict:
        if isinstance(self._says, Exception):
            raise self._says
        return self._says or Continue(ticket=self)

    def shed(self) -> None:
        self.events.append("shed")

    def settled(self) -> None:
        self.events.append("settled")

    def on_loss(self, cut_off: Callable[[], None]) -> None:
        self.events.append("on_loss")

    def release(self) -> None:
        self.events.append("release")

    def refund(self) -> None:
        self.events.append("refund")

    def subscribe(self, wake: Callable[[], None]) -> Leave:
        self.wake = wake
        return nobody_tells

    def state(self) -> GateState:
        return self._state


@pytest.mark.parametrize("verdict", [REFUSE, WAIT, DROP])
async def test_what_the_first_gates_gave_is_refunded_when_a_later_one_holds_back(
    verdict: Verdict,
) -> None:
    first, second, last = Scripted(), Scripted(), Scripted()
    assert await Chain([first, second, Scripted(verdict), last]).admit(CANDIDATE) is verdict
    assert (first.events, second.events, last.events) == (["refund"], ["refund"], [])


async def test_a_gate_that_fails_leaves_no_reservation_behind() -> None:
    first = Scripted()
    with pytest.raises(OSError, match="broken"):
        await Chain([first, Scripted(OSError("broken"))]).admit(CANDIDATE)
    assert first.events == ["refund"]


@pytest.mark.parametrize("end", ["release", "refund"])
async def test_the_reservations_end_together(end: str) -> None:
    gates = [Scripted(), Scripted()]
    verdict = await Chain(gates).admit(CANDIDATE)
    assert isinstance(verdict, Continue)
    assert [gate.events for gate in gates] == [[], []]
    getattr(verdict.ticket, end)()
    assert [gate.events for gate in gates] == [[end], [end]]
    verdict.ticket.settled()
    assert [gate.events for gate in gates] == [[end, "settled"]] * 2


async def test_one_reservation_that_fails_to_end_does_not_keep_the_others() -> None:
    class Stuck(Scripted):
        def release(self) -> None:
            raise OSError("stuck")

    first = Scripted()
    verdict = await Chain([first, Stuck()]).admit(CANDIDATE)
    assert isinstance(verdict, Continue)
    with pytest.raises(OSError, match="stuck"):
        verdict.ticket.release()
    assert first.events == ["release"]


async def test_the_smallest_budget_counts() -> None:
    wide, tight = (
        Scripted(state=GateState(type="wide", budget=0.8)),
        Scripted(state=GateState(type="tight", budget=0.25)),
    )
    chain = Chain([wide, tight])
    assert chain.budget() == 0.25
    assert chain.permits(8) == 2


async def test_a_composite_starts_stops_and_wakes_with_its_gates() -> None:
    gates, woken = [Scripted(), Scripted()], list[str]()
    chain = Chain(gates)
    chain.subscribe(lambda: woken.append("woken"))
    await chain.start()
    await chain.stop()
    for gate in gates:
        gate.wake()
        assert gate.events == ["start", "stop"]
    assert woken == ["woken", "woken"]


async def test_a_composite_shows_the_reading_of_the_gate_that_has_one() -> None:
    local = Scripted(state=GateState(type="local", budget=0.0, reason="all 2 slots are taken"))
    over_sensor = GateState(
        type="prometheus-query", budget=0.5, available=False, value=0.6, threshold=0.1, pool="p"
    )
    assert Chain([local, Scripted(state=over_sensor)]).state() == GateState(
        type="composite",
        budget=0.0,
        available=False,
        value=0.6,
        threshold=0.1,
        pool="p",
        reason="local: all 2 slots are taken",
    )


async def test_refusals_become_waiting_and_nothing_else_changes() -> None:
    verdict = await Patience(Scripted(REFUSE)).admit(CANDIDATE)
    assert isinstance(verdict, Wait)
    assert (verdict.reason, verdict.message) == (REFUSE.reason, REFUSE.message)
    for other in (WAIT, DROP):
        assert await Patience(Scripted(other)).admit(CANDIDATE) is other
    inner = Scripted(state=GateState(type="inner", budget=0.5, reason="why"))
    patient = Patience(inner)
    admitted = await patient.admit(CANDIDATE)
    assert isinstance(admitted, Continue)
    assert admitted.ticket is inner
    assert (patient.budget(), patient.permits(8)) == (0.5, 4)
    assert patient.state() == GateState(type="wait-on-refuse", budget=0.5, reason="why")


async def test_a_refusal_that_concerns_one_tenant_takes_no_place_in_memory() -> None:
    refusal = Refuse(reason=Reason.QUOTA_EXHAUSTED, message="enough", lot="quota of a")
    assert await Patience(Scripted(refusal)).admit(CANDIDATE) is refusal


async def test_who_waits_is_woken_when_the_inner_gate_changes() -> None:
    inner, woken = ConcurrencyGate(LiveNumber(1), blocking=False), list[str]()
    patient = Patience(inner)
    await patient.start()
    patient.subscribe(lambda: woken.append("woken"))
    admitted = await patient.admit(CANDIDATE)
    assert isinstance(admitted, Continue)
    assert isinstance(await patient.admit(CANDIDATE), Wait)
    admitted.ticket.release()
    assert woken == ["woken"]


async def test_requests_that_a_later_gate_refuses_do_not_wake_each_other() -> None:
    """Each would give back the first gate's slot, wake the other, and so on for ever."""
    chain = Chain([ConcurrencyGate(LiveNumber(4), blocking=False), Scripted(REFUSE)])
    woken = list[str]()
    chain.subscribe(lambda: woken.append("woken"))
    for _ in range(2):
        assert await chain.admit(CANDIDATE) is REFUSE
    assert woken == []


async def test_gates_of_gates_are_built_from_the_configuration() -> None:
    limits = tuple(LocalMaxConcurrencyGate(limit=limit) for limit in (3, 2))
    settings = WaitOnRefuseGate(gate=CompositeGate(gates=limits))
    gate = build_gate(
        settings, GateContext(prometheus=None, clock=SystemClock()), workers=LiveNumber(8)
    )
    verdicts = [await gate.admit(CANDIDATE) for _ in range(4)]
    assert [type(verdict) for verdict in verdicts] == [Continue, Continue, Wait, Wait]
    assert gate.permits(8) == 0
    first = verdicts[0]
    assert isinstance(first, Continue)
    first.ticket.release()
    assert gate.permits(8) == 1


async def test_a_composite_keeps_the_lot_of_the_gate_that_names_one() -> None:
    class Classifying(Scripted):
        async def admit(self, candidate: Candidate) -> Verdict:
            return Continue(ticket=self, lot="overflow of team-a")

    verdict = await Chain([Classifying(), Scripted()]).admit(CANDIDATE)
    assert isinstance(verdict, Continue)
    assert verdict.lot == "overflow of team-a"
