"""`tier-priority-admission`: the verdict for every tier and class, saturated or not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from async_processor.admission.base import (
    Candidate,
    Classification,
    Continue,
    Drop,
    GateState,
    Reason,
    Refuse,
    Verdict,
    Wait,
)
from async_processor.admission.build import GateContext, build_gate
from async_processor.admission.concurrency import ConcurrencyGate
from async_processor.admission.live_number import LiveNumber
from async_processor.admission.settings import TierPriorityAdmissionGate
from async_processor.admission.tickets import HOLDS_NOTHING
from async_processor.admission.tiers import TierGate
from async_processor.clock import SystemClock
from async_processor.listeners import Leave, nobody_tells
from async_processor.testing.candidates import candidate

REFUSE = Refuse(reason=Reason.GATE_CLOSED, message="room 0.1 is not above 0.2", lot="l")


class Saturation:
    """Tells what a test lets it tell."""

    def __init__(self, says: Verdict, budget: float) -> None:
        self._says = says
        self._budget = budget
        self.wake: Callable[[], None] = lambda: None

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    def budget(self) -> float:
        return self._budget

    def permits(self, workers: int) -> int:
        return int(workers * self._budget)

    async def admit(self, candidate: Candidate) -> Verdict:
        return self._says

    def subscribe(self, wake: Callable[[], None]) -> Leave:
        self.wake = wake
        return nobody_tells

    async def room(self, lot: str) -> int | None:
        return 7 if lot == "l" else None

    def on_room(self, recall: Callable[[str], None]) -> Leave:
        recall("l")
        return nobody_tells

    def state(self) -> GateState:
        return GateState(type="inner", budget=self._budget, value=0.1, threshold=0.2)


def of(tier: str | None, classification: Classification, label: str = "tier") -> Candidate:
    labels = {} if tier is None else {label: tier}
    return candidate(labels=labels, classification=classification)


def gate(says: Verdict = REFUSE, budget: float = 0.0) -> TierGate:
    return TierGate(Saturation(says, budget), tier_label="tier")


RESERVED, OVERFLOW, NONE = Classification.RESERVED, Classification.OVERFLOW, Classification.NONE


@pytest.mark.parametrize("held_back", [REFUSE, Wait(reason=Reason.GATE_CLOSED, message="m")])
@pytest.mark.parametrize(
    ("tier", "classification", "verdict"),
    [
        ("interactive", RESERVED, Wait),
        ("async", RESERVED, Wait),
        ("batch", RESERVED, Wait),
        ("interactive", OVERFLOW, Drop),
        ("async", OVERFLOW, Refuse),
        ("batch", OVERFLOW, Refuse),
        ("Interactive", OVERFLOW, Refuse),  # an unknown tier is batch
        (None, OVERFLOW, Refuse),
        ("interactive", NONE, Drop),  # unclassified is overflow
        ("batch", NONE, Refuse),
    ],
)
async def test_at_a_saturated_pool_tier_and_class_decide(
    held_back: Refuse | Wait,
    tier: str | None,
    classification: Classification,
    verdict: type[Verdict],
) -> None:
    said = await gate(held_back).admit(of(tier, classification))
    assert isinstance(said, verdict)
    if isinstance(said, Refuse | Wait):
        assert (said.reason, said.message) == (held_back.reason, held_back.message)
    if isinstance(said, Drop):
        assert said.message == f"the pool is saturated: {held_back.message}"


async def test_a_refusal_stays_in_its_lot() -> None:
    assert await gate().admit(of("batch", OVERFLOW)) is REFUSE
    assert await gate().room("l") == 7
    recalled: list[str] = []
    gate().on_room(recalled.append)
    assert recalled == ["l"]


async def test_a_pool_that_is_not_saturated_lets_everything_through_as_its_gate_does() -> None:
    admitted = Continue(ticket=HOLDS_NOTHING)
    for classification in Classification:
        for tier in ("interactive", "async", "batch"):
            assert await gate(admitted, 0.5).admit(of(tier, classification)) is admitted


async def test_an_open_gate_that_has_given_out_its_reading_drops_nothing() -> None:
    said = await gate(REFUSE, 0.5).admit(of("interactive", OVERFLOW))
    assert said is REFUSE
    assert isinstance(await gate(REFUSE, 0.5).admit(of("interactive", RESERVED)), Wait)


async def test_permits_follow_the_gate_until_it_closes_and_then_let_all_be_judged() -> None:
    assert gate(REFUSE, 0.5).permits(8) == 4
    assert gate(REFUSE, 0.0).permits(8) == 8


async def test_it_shows_and_wakes_as_its_gate_does() -> None:
    inner, woken = Saturation(REFUSE, 0.0), list[str]()
    tiers = TierGate(inner, tier_label="tier")
    tiers.subscribe(lambda: woken.append("woken"))
    inner.wake()
    assert woken == ["woken"]
    assert tiers.budget() == 0.0
    assert tiers.state() == GateState(
        type="tier-priority-admission", budget=0.0, value=0.1, threshold=0.2
    )


async def test_it_is_built_from_its_settings_and_keeps_the_inner_gates_accounting() -> None:
    settings = TierPriorityAdmissionGate.model_validate(
        {
            "saturation_gate": "local-max-concurrency",
            "saturation_gate_params": {"limit": "1"},
            "tier_label": "class",
        }
    )
    built = build_gate(
        settings, GateContext(prometheus=None, clock=SystemClock()), workers=LiveNumber(4)
    )
    assert isinstance(built, TierGate)
    assert isinstance(built._gate, ConcurrencyGate)
    urgent = of("interactive", OVERFLOW, label="class")
    first = await built.admit(urgent)
    assert isinstance(first, Continue)
    assert isinstance(await built.admit(urgent), Drop)
    first.ticket.release()
    assert isinstance(await built.admit(urgent), Continue)
