"""A composite keeps nothing: whatever its gates do, and wherever it is cut off, each reservation is
either in the ticket that it hands out or has been given back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import suppress
from types import coroutine
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_processor.admission.base import (
    OVERFLOW_LOT,
    Candidate,
    Classification,
    Continue,
    Drop,
    GateState,
    Reason,
    Refuse,
    Ticket,
    Verdict,
    Wait,
)
from async_processor.admission.chain import Chain
from async_processor.admission.quota.book import Full
from async_processor.admission.quota.gate import QuotaGate
from async_processor.admission.quota.tenants import Tenants
from async_processor.admission.tickets import HOLDS_NOTHING
from async_processor.lifecycle import Watch
from async_processor.listeners import Leave, nobody_tells
from async_processor.testing.candidates import CANDIDATE, candidate
from async_processor.testing.clock import ManualClock
from async_processor.wire.envelope import Envelope

End = Literal["release", "refund"]

HOLD_BACK: dict[str, Verdict] = {
    "refuse": Refuse(reason=Reason.GATE_CLOSED, message="closed", lot="a lot"),
    "wait": Wait(reason=Reason.GATE_CLOSED, message="later"),
    "drop": Drop(message="no"),
}


@coroutine
def pause() -> Generator[None]:
    """A place where whoever runs this may cut it off."""
    yield


class Script(msgspec.Struct, frozen=True):
    """What a gate does: how often it waits before its word, and how its ticket ends."""

    word: str
    waits: int
    end_fails: bool
    classification: Classification
    lot: str


scripts = st.builds(
    Script,
    word=st.sampled_from(["continue", "continue", "continue", "raise", *HOLD_BACK]),
    waits=st.integers(0, 2),
    end_fails=st.booleans(),
    classification=st.sampled_from(Classification),
    lot=st.sampled_from(["", "lot a", "lot b"]),
)


class Actor:
    """A gate that follows its script, and its own ticket."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.given = 0
        self.ends: list[End] = []
        self.saw: list[Classification] = []
        self.watchers = 0
        self.sheds = 0

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def budget(self) -> float:
        return 1.0

    def permits(self, workers: int) -> int:
        return workers

    async def admit(self, candidate: Candidate) -> Verdict:
        self.saw.append(candidate.classification)
        for _ in range(self.script.waits):
            await pause()
        if self.script.word == "raise":
            raise OSError("the gate is broken")
        if self.script.word != "continue":
            return HOLD_BACK[self.script.word]
        self.given += 1
        return Continue(ticket=self, classification=self.script.classification, lot=self.script.lot)

    def release(self) -> None:
        self._end("release")

    def refund(self) -> None:
        self._end("refund")

    def _end(self, how: End) -> None:
        self.ends.append(how)
        if self.script.end_fails:
            raise OSError("the ticket is broken")

    def shed(self) -> None:
        self.sheds += 1

    def settled(self) -> None:
        """Says nothing of who still holds something."""

    def on_loss(self, cut_off: Callable[[], None]) -> None:
        self.watchers += 1

    def subscribe(self, wake: Callable[[], None]) -> Leave:
        return nobody_tells

    async def room(self, lot: str) -> int | None:
        return self.given if lot == self.script.lot else None

    def on_room(self, recall: Callable[[str], None]) -> Leave:
        return nobody_tells

    def state(self) -> GateState:
        return GateState(type="actor", budget=1.0)


def run(work: Coroutine[Any, Any, Any], cuts: Sequence[int]) -> Any:
    """Bring `work` to its end, and cancel it each time it waits with one of these numbers."""
    waits = 0
    cut = False
    while True:
        try:
            if cut:
                work.throw(asyncio.CancelledError())
            else:
                work.send(None)
        except StopIteration as end:
            return end.value
        except (OSError, asyncio.CancelledError) as error:
            return error
        cut = waits in cuts
        waits += 1


@given(
    st.lists(scripts, min_size=1, max_size=5),
    st.lists(st.integers(0, 12), max_size=2),
    st.sampled_from(["release", "refund"]),
)
def test_no_reservation_leaks_whatever_fails(
    scripts: list[Script], cuts: list[int], end: End
) -> None:
    gates = [Actor(script) for script in scripts]
    verdict = run(Chain(gates).admit(CANDIDATE), cuts)
    given_out = [gate for gate in gates if gate.given]
    if not isinstance(verdict, Continue):
        assert [gate.ends for gate in given_out] == [["refund"]] * len(given_out)
        return
    assert given_out == gates
    assert all(gate.ends == [] for gate in gates)
    verdict.ticket.on_loss(lambda: None)
    verdict.ticket.shed()
    assert all((gate.watchers, gate.sheds) == (1, 1) for gate in gates)
    with suppress(OSError):
        getattr(verdict.ticket, end)()
    assert [gate.ends for gate in gates] == [[end]] * len(gates)


@given(st.lists(scripts, min_size=1, max_size=5), st.sampled_from(Classification))
def test_what_gates_say_of_a_request_reaches_the_later_ones_and_the_caller(
    scripts: list[Script], before: Classification
) -> None:
    gates = [Actor(script) for script in scripts]
    verdict = run(Chain(gates).admit(CANDIDATE.classified(before)), ())
    said = before
    for gate in gates:
        assert gate.saw in ([said], [])
        said = gate.script.classification or said
    if isinstance(verdict, Continue):
        lots = [gate.script.lot for gate in gates if gate.script.lot]
        assert verdict.classification == said
        assert verdict.lot == (lots[-1] if lots else "")
    elif not isinstance(verdict, OSError):
        assert verdict in HOLD_BACK.values()


@pytest.mark.parametrize("word", HOLD_BACK)
def test_a_ticket_that_cannot_be_refunded_is_an_error_and_keeps_no_other(word: str) -> None:
    fine = Script("continue", 0, False, Classification.NONE, "")
    broken = Script("continue", 0, True, Classification.NONE, "")
    gates = [Actor(each) for each in (fine, broken, fine)]
    held_back = Actor(Script(word, 0, False, Classification.NONE, ""))
    assert isinstance(run(Chain([*gates, held_back]).admit(CANDIDATE), ()), OSError)
    assert [gate.ends for gate in gates] == [["refund"]] * 3


class Count:
    """A count that a test sets: how many more requests each tenant has room for."""

    available = True
    fault = ""

    def __init__(self, **rooms: int) -> None:
        self.rooms = rooms

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def take(self, tenant: str, limit: int, envelope: Envelope) -> Ticket | Full:
        if not self.rooms[tenant]:
            return Full(look_after=1.0)
        self.rooms[tenant] -= 1
        return HOLDS_NOTHING

    async def room(self, tenant: str, limit: int) -> int | Full:
        return self.rooms[tenant] or Full(look_after=1.0)

    async def used(self, tenants: Sequence[str]) -> Sequence[int]:
        raise NotImplementedError

    def subscribe(self, wake: Callable[[], None]) -> Leave:
        return nobody_tells

    def on_room(self, freed: Callable[[str], None]) -> Leave:
        return nobody_tells


def classifying(attribute: str, count: Count) -> QuotaGate:
    return QuotaGate(
        count,
        Tenants(attribute, default=2, limits={}),
        name=f"quota:{{concurrency:{attribute}}}",
        blocking=False,
        missing="allow",
        clock=ManualClock(),
        watch=Watch(),
    )


@pytest.mark.parametrize(
    ("by_team", "by_user", "classification", "lot_of"),
    [
        (1, 1, Classification.RESERVED, "userid"),
        (1, 0, Classification.OVERFLOW, "userid"),
        (0, 1, Classification.RESERVED, "userid"),
        (0, None, Classification.OVERFLOW, "team"),
    ],
)
async def test_of_two_quotas_the_one_that_spoke_last_knows_the_lot_and_its_room(
    by_team: int, by_user: int | None, classification: Classification, lot_of: str
) -> None:
    teams, users = Count(x=by_team), Count(y=by_user or 0)
    chain = Chain([classifying("team", teams), classifying("userid", users)])
    metadata = {"team": "x"} | ({} if by_user is None else {"userid": "y"})
    verdict = await chain.admit(candidate(metadata=metadata))
    assert isinstance(verdict, Continue)
    assert verdict.classification is classification
    assert verdict.lot.startswith(OVERFLOW_LOT)
    assert lot_of in verdict.lot
    teams.rooms["x"], users.rooms["y"] = 3, 5
    assert await chain.room(verdict.lot) == {"team": 3, "userid": 5}[lot_of]
    teams.rooms["x"], users.rooms["y"] = (0, 5) if lot_of == "team" else (3, 0)
    assert await chain.room(verdict.lot) == 0
    assert await chain.room("somebody else's") is None
