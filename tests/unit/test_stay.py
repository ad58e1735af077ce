"""What the gates reserved for a request is given back once, whatever fails or is cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Sequence
from types import SimpleNamespace, coroutine
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_processor.admission.base import Continue
from async_processor.dispatch.stay import Stay
from async_processor.settlement.held import Interruption
from async_processor.testing.candidates import CANDIDATE


class Script(msgspec.Struct, frozen=True):
    """How the end of a ticket goes: how often it waits, and whether it fails then."""

    waits: int = 0
    fails: bool = False


class Noted:
    """A ticket that follows its script, and writes down how it ended."""

    def __init__(self, name: int, script: Script, log: list[tuple[int, str]]) -> None:
        self._name = name
        self._script = script
        self._log = log
        self.cut_off: Callable[[], None] = lambda: None

    async def release(self) -> None:
        await self._end("release")

    async def refund(self) -> None:
        await self._end("refund")

    async def _end(self, how: str) -> None:
        self._log.append((self._name, how))
        for _ in range(self._script.waits):
            await pause()
        if self._script.fails:
            raise OSError("the ticket is broken")

    def settled(self) -> None:
        self._log.append((self._name, "settled"))

    def shed(self) -> None:
        self._log.append((self._name, "shed"))

    def on_loss(self, cut_off: Callable[[], None]) -> None:
        self.cut_off = cut_off


@coroutine
def pause() -> Generator[None]:
    """A place where whoever runs this may cut it off."""
    yield


def run(work: Coroutine[Any, Any, None], cuts: Sequence[int] = ()) -> None:
    """Bring `work` to its end, and cancel it each time it waits with one of these numbers."""
    waits, cut = 0, False
    while True:
        try:
            if cut:
                work.throw(asyncio.CancelledError())
            else:
                work.send(None)
        except (StopIteration, OSError, asyncio.CancelledError):
            return
        cut = waits in cuts
        waits += 1


class Case:
    """A stay with a ticket for each script, and what became of them."""

    def __init__(self, scripts: Sequence[Script], *, started: bool = False) -> None:
        self.log: list[tuple[int, str]] = []
        self.interruptions: list[Interruption] = []
        held = SimpleNamespace(
            started_at=1.0 if started else None, interrupt=self.interruptions.append
        )
        self.stay = Stay(cast("Any", held), cast("Any", None), cast("Any", None), cancelled=False)
        self.tickets = [Noted(name, script, self.log) for name, script in enumerate(scripts)]
        for ticket in self.tickets:
            self.stay.admitted(CANDIDATE, Continue(ticket=ticket))


SCRIPTS = st.lists(st.builds(Script, st.integers(0, 2), st.booleans()), max_size=4)
CUTS = st.lists(st.integers(0, 8), max_size=3)


@given(SCRIPTS, st.booleans(), CUTS, CUTS)
def test_every_ticket_ends_once_the_last_first(
    scripts: list[Script], started: bool, cuts: list[int], later_cuts: list[int]
) -> None:
    case = Case(scripts, started=started)
    run(case.stay.end_tickets(), cuts)
    run(case.stay.end_tickets(), later_cuts)
    how = "release" if started else "refund"
    assert case.log == [(name, how) for name in reversed(range(len(scripts)))]


@given(SCRIPTS, CUTS)
def test_what_was_given_back_on_the_way_is_not_given_back_at_the_end(
    scripts: list[Script], cuts: list[int]
) -> None:
    case = Case(scripts, started=True)
    run(case.stay.refund(), cuts)
    run(case.stay.end_tickets())
    assert case.log == [(name, "refund") for name in reversed(range(len(scripts)))]


def test_only_what_the_request_had_at_its_end_hears_of_its_result() -> None:
    case = Case([Script()])
    run(case.stay.refund())
    case.stay.admitted(CANDIDATE, Continue(ticket=Noted(7, Script(), case.log)))
    run(case.stay.end_tickets())
    case.stay.settled()
    assert case.log == [(0, "refund"), (7, "refund"), (7, "settled")]


@pytest.mark.parametrize("number", [0, 1])
def test_a_ticket_that_is_lost_cuts_the_request_off(number: int) -> None:
    case = Case([Script(), Script()])
    case.tickets[number].cut_off()
    assert case.interruptions == [Interruption.TICKET_LOST]
