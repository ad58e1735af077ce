"""Requests on their way through gates: whoever leaves hands its turn on, and whoever must wait on
does not wake the others for nothing."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

import pytest

from async_processor.admission.base import (
    Candidate,
    Continue,
    Drop,
    Reason,
    Refuse,
    Verdict,
    Wait,
    WithoutLots,
)
from async_processor.admission.constant import ConstantGate
from async_processor.admission.tickets import HOLDS_NOTHING
from async_processor.dispatch import parking
from async_processor.dispatch.merge.base import Ready
from async_processor.dispatch.merge.random_robin import RandomRobin
from async_processor.dispatch.parking_lots import ParkingLots
from async_processor.dispatch.passage import Passage
from async_processor.dispatch.route import Route
from async_processor.dispatch.seat import Seat, Stand
from async_processor.dispatch.settings import QueueSettings
from async_processor.dispatch.stay import Stay
from async_processor.listeners import Leave, Listeners
from async_processor.settlement.decision import Decision, Ending
from async_processor.settlement.held import Held, Phase
from async_processor.settlement.routing import ResultRoute
from async_processor.settlement.triage import Triage
from async_processor.telemetry.metrics import Metrics
from async_processor.testing.clock import ManualClock
from async_processor.testing.messages import message
from async_processor.timeouts import Timeouts
from async_processor.transport.base import Delivery
from async_processor.wire.envelope import read

PASS = Continue(ticket=HOLDS_NOTHING)
WAIT = Wait(reason=Reason.GATE_CLOSED, message="later")
REFUSE = Refuse(reason=Reason.GATE_CLOSED, message="no")
OVER_QUOTA = Refuse(reason=Reason.QUOTA_EXHAUSTED, message="enough", lot="quota of a")
DROP = Drop(message="never")


@pytest.fixture(autouse=True)
def only_the_gate_wakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is."""
    monkeypatch.setattr(parking, "LOOK_SECONDS", 3600.0)


class Gauges:
    def moved(self, before: Phase | None, after: Phase | None) -> None: ...


class Places:
    """The seats of a pool without an end."""

    def __init__(self) -> None:
        self.timeouts = Timeouts()

    def moved(self, seat: Seat, before: Stand | None, after: Stand | None) -> None: ...

    def stands_in_lane(self, seat: Seat, ready: Ready) -> str | None: ...

    def leaves_lane(self, ready: Ready) -> None: ...


class Guard(WithoutLots):
    """A pool's gate that says to each request what the test has told it to say, in turn."""

    def __init__(self) -> None:
        self.says: dict[str, Verdict | Exception] = {}
        self.asked: list[str] = []
        self.slow = asyncio.Event()
        self.slow.set()
        self.listeners = Listeners[[]]()

    async def admit(self, candidate: Candidate) -> Verdict:
        request_id = candidate.envelope.request.id
        self.asked.append(request_id)
        await self.slow.wait()
        says = self.says.get(request_id, WAIT)
        if isinstance(says, Exception):
            raise says
        return says

    def subscribe(self, wake: Callable[[], None]) -> Leave:
        return self.listeners.add(wake)

    def change(self) -> list[str]:
        """The gate may be open now; returns where those will stand that ask it."""
        self.asked = []
        self.listeners.tell()
        return self.asked


class Stage:
    """Requests that arrive at a pool whose gate is a `Guard`."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.gate = Guard()
        self.lots = ParkingLots()
        self.passage = Passage(self.clock, self.lots, gate_wait_timeout=60.0)
        self._queue = QueueSettings(igw_base_url="http://x")
        self._route = cast(
            "Route",
            SimpleNamespace(
                queue=self._queue,
                gate=ConstantGate(),
                pool=SimpleNamespace(gate=self.gate, merge=RandomRobin()),
                triage=Triage(
                    route=ResultRoute(queue_name="q", default="results"),
                    max_deliveries=5,
                    payload_limit=1000,
                ),
                metrics=Metrics().queue("q", "q", "default"),
            ),
        )

    async def arrive(self, request_id: str, *, in_seconds: float = 100.0) -> Arrival:
        """A request comes to the gate, and has its verdict."""
        body = message(request_id, deadline=self.clock.now() + in_seconds)
        delivery = Delivery(
            queue_name="q", token=request_id, body=body, score=0.0, deliveries=0, claimed_at=0.0,
            message=read(body),
        )  # fmt: skip
        held = Held(delivery, Gauges(), claimed_at=0.0)
        stay = Stay(held, self._route, Seat(Places(), self._queue, Stand.SLOT), cancelled=False)
        arrival = Arrival(held, asyncio.create_task(self.passage.take(stay)))
        await settled()
        return arrival


class Arrival:
    def __init__(self, held: Held, task: asyncio.Task[Decision | None]) -> None:
        self.held = held
        self.task = task

    @property
    def waits(self) -> bool:
        return not self.task.done()

    @property
    def ending(self) -> Ending | None:
        """None: it got through."""
        decision = self.task.result()
        return None if decision is None else decision.ending


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@asynccontextmanager
async def waiting(*ids: str) -> AsyncIterator[tuple[Stage, dict[str, Arrival]]]:
    """Requests that wait at the gate, the most urgent first."""
    stage = Stage()
    arrivals = {
        each: await stage.arrive(each, in_seconds=100.0 + rank) for rank, each in enumerate(ids)
    }
    assert all(arrival.waits for arrival in arrivals.values())
    yield stage, arrivals
    for arrival in arrivals.values():
        arrival.task.cancel()
    await asyncio.gather(*(each.task for each in arrivals.values()), return_exceptions=True)


@pytest.mark.parametrize(
    ("says", "ending"),
    [
        (PASS, None),
        (REFUSE, Ending.REFUSED),
        (OVER_QUOTA, Ending.PARKED),
        (DROP, Ending.DROPPED),
        (OSError("the gate is broken"), Ending.REFUSED),
    ],
)
async def test_whoever_leaves_the_gate_hands_its_turn_on(
    says: Verdict | Exception, ending: Ending | None
) -> None:
    async with waiting("first", "second", "third") as (stage, arrivals):
        stage.gate.says = {"first": says, "second": PASS, "third": PASS}
        stage.gate.change()
        await settled()
        assert [each.ending for each in arrivals.values()] == [ending, None, None]


async def test_one_that_is_cut_off_while_it_asks_hands_its_turn_on() -> None:
    async with waiting("first", "second") as (stage, arrivals):
        stage.gate.says = {"first": PASS, "second": PASS}
        stage.gate.slow.clear()
        asked = stage.gate.change()
        await settled()
        assert asked == ["first"]
        arrivals["first"].task.cancel()
        stage.gate.slow.set()
        await settled()
        assert arrivals["first"].task.cancelled()
        assert arrivals["second"].ending is None


async def test_a_gate_that_is_still_closed_is_asked_once() -> None:
    async with waiting("first", "second", "third") as (stage, arrivals):
        asked = stage.gate.change()
        await settled()
        assert asked == ["first"]
        assert all(arrival.waits for arrival in arrivals.values())
        asked = stage.gate.change()
        await settled()
        assert asked == ["first"], "who has waited in vain keeps its rank"


async def test_a_gate_that_opens_a_crack_lets_one_through_and_is_asked_twice() -> None:
    async with waiting("first", "second", "third") as (stage, arrivals):
        stage.gate.says = {"first": PASS}
        asked = stage.gate.change()
        await settled()
        assert asked == ["first", "second"]
        assert [arrival.waits for arrival in arrivals.values()] == [False, True, True]


async def test_nothing_is_kept_of_a_gate_at_which_nobody_waits() -> None:
    stage = Stage()
    gone = weakref.ref(stage.gate)
    arrival = await stage.arrive("r")
    stage.gate.says = {"r": PASS}
    stage.gate.change()
    await settled()
    assert arrival.ending is None
    assert not len(stage.gate.listeners)
    passage = stage.passage
    del stage, arrival
    gc.collect()
    assert gone() is None, passage


async def test_requests_of_the_configurations_before_and_after_a_reload_wait_in_one_order() -> None:
    stage = Stage()
    late = await stage.arrive("late", in_seconds=200.0)
    stage.passage = Passage(stage.clock, stage.lots, gate_wait_timeout=60.0)
    early = await stage.arrive("early", in_seconds=100.0)
    stage.gate.says = {"late": PASS, "early": PASS}
    asked = stage.gate.change()
    await settled()
    assert asked == ["early", "late"]
    assert (early.ending, late.ending) == (None, None)
