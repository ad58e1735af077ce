"""The gates that need no source: always open, and so many at once."""

from __future__ import annotations

import pytest

from async_processor.admission.base import Continue, Reason, Refuse, Ticket, Wait
from async_processor.admission.concurrency import ConcurrencyGate
from async_processor.admission.constant import ConstantGate
from async_processor.admission.live_number import LiveNumber
from async_processor.testing.candidates import CANDIDATE


async def taken(gate: ConcurrencyGate) -> Ticket:
    verdict = await gate.admit(CANDIDATE)
    assert isinstance(verdict, Continue)
    return verdict.ticket


async def test_constant_lets_everything_through() -> None:
    gate = ConstantGate()
    assert gate.permits(7) == 7
    assert gate.budget() == 1.0
    assert all([isinstance(await gate.admit(CANDIDATE), Continue) for _ in range(100)])
    assert gate.state().available


@pytest.mark.parametrize(("blocking", "over"), [(False, Refuse), (True, Wait)])
async def test_over_the_limit_a_request_is_refused_or_waits(
    blocking: bool, over: type[Refuse] | type[Wait]
) -> None:
    gate = ConcurrencyGate(LiveNumber(2), blocking=blocking)
    for _ in range(2):
        await taken(gate)
    verdict = await gate.admit(CANDIDATE)
    assert isinstance(verdict, over)
    assert (verdict.reason, verdict.message) == (Reason.GATE_CLOSED, "all 2 slots are taken")
    assert gate.state().reason == "all 2 slots are taken"


async def test_the_budget_is_the_free_share_and_permits_are_free_slots() -> None:
    gate = ConcurrencyGate(LiveNumber(4), blocking=False)
    assert (gate.budget(), gate.permits(64), gate.permits(3)) == (1.0, 4, 3)
    await taken(gate)
    assert (gate.budget(), gate.permits(64)) == (0.75, 3)


@pytest.mark.parametrize("end", ["release", "refund"])
async def test_a_slot_comes_back_once_and_wakes_who_waits(end: str) -> None:
    gate, woken = ConcurrencyGate(LiveNumber(1), blocking=True), list[int]()
    await gate.start()
    gate.subscribe(lambda: woken.append(gate.permits(8)))
    ticket = await taken(gate)
    assert isinstance(await gate.admit(CANDIDATE), Wait)
    getattr(ticket, end)()
    ticket.release()
    ticket.refund()
    assert woken == [1]
    assert gate.permits(8) == 1
