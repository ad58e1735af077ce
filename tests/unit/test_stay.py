"""What the gates reserved for a request is given back once, whatever fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_processor.admission.base import Continue
from async_processor.dispatch.stay import Stay
from async_processor.settlement.held import Interruption
from async_processor.testing.candidates import CANDIDATE


class Noted:
    """A ticket that writes down how it ended, and may fail then."""

    def __init__(self, name: int, log: list[tuple[int, str]], *, fails: bool) -> None:
        self._name = name
        self._fails = fails
        self._log = log
        self.cut_off: Callable[[], None] = lambda: None

    def release(self) -> None:
        self._end("release")

    def refund(self) -> None:
        self._end("refund")

    def _end(self, how: str) -> None:
        self._log.append((self._name, how))
        if self._fails:
            raise OSError("the ticket is broken")

    def settled(self) -> None:
        self._log.append((self._name, "settled"))

    def shed(self) -> None:
        self._log.append((self._name, "shed"))

    def on_loss(self, cut_off: Callable[[], None]) -> None:
        self.cut_off = cut_off


def run(end: Callable[[], None]) -> None:
    """End tickets of which some may be broken."""
    with suppress(OSError):
        end()


class Case:
    """A stay with so many tickets, of which some fail, and what became of them."""

    def __init__(self, fails: Sequence[bool], *, started: bool = False) -> None:
        self.log: list[tuple[int, str]] = []
        self.interruptions: list[Interruption] = []
        held = SimpleNamespace(
            started_at=1.0 if started else None, interrupt=self.interruptions.append
        )
        self.stay = Stay(cast("Any", held), cast("Any", None), cast("Any", None), cancelled=False)
        self.tickets = [Noted(name, self.log, fails=each) for name, each in enumerate(fails)]
        for ticket in self.tickets:
            self.stay.admitted(CANDIDATE, Continue(ticket=ticket))


FAILS = st.lists(st.booleans(), max_size=4)


@given(FAILS, st.booleans())
def test_every_ticket_ends_once_the_last_first(fails: list[bool], started: bool) -> None:
    case = Case(fails, started=started)
    run(case.stay.end_tickets)
    run(case.stay.end_tickets)
    how = "release" if started else "refund"
    assert case.log == [(name, how) for name in reversed(range(len(fails)))]


@given(FAILS)
def test_what_was_given_back_on_the_way_is_not_given_back_at_the_end(fails: list[bool]) -> None:
    case = Case(fails, started=True)
    run(case.stay.refund)
    run(case.stay.end_tickets)
    assert case.log == [(name, "refund") for name in reversed(range(len(fails)))]


def test_only_what_the_request_had_at_its_end_hears_of_its_result() -> None:
    case = Case([False])
    case.stay.refund()
    case.stay.admitted(CANDIDATE, Continue(ticket=Noted(7, case.log, fails=False)))
    case.stay.end_tickets()
    case.stay.settled()
    assert case.log == [(0, "refund"), (7, "refund"), (7, "settled")]


@pytest.mark.parametrize("number", [0, 1])
def test_a_ticket_that_is_lost_cuts_the_request_off(number: int) -> None:
    case = Case([False, False])
    case.tickets[number].cut_off()
    assert case.interruptions == [Interruption.TICKET_LOST]
