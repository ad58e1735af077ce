"""At most so many at once, counted over the gates that take each other's place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from async_processor.admission.base import Continue, Gate, Refuse, Ticket, Wait
from async_processor.admission.build import GateContext, build_gate
from async_processor.admission.in_flight import InFlight
from async_processor.admission.live_number import LiveNumber
from async_processor.admission.settings import GateSettings
from async_processor.testing.candidates import CANDIDATE
from async_processor.testing.clock import ManualClock


@given(st.integers(0, 20), st.lists(st.booleans(), max_size=60))
async def test_never_more_in_flight_than_the_limit(limit: int, takes: list[bool]) -> None:
    in_flight, running = InFlight(), list[Ticket]()
    for take in takes:
        if take:
            running += filter(None, [in_flight.take(limit)])
        elif running:
            running.pop().release()
        assert in_flight.count == len(running) <= limit
        assert in_flight.free(limit) == limit - len(running)


async def test_a_limit_below_what_runs_lets_nothing_start_until_enough_has_ended() -> None:
    in_flight = InFlight()
    running = [ticket for _ in range(4) if (ticket := in_flight.take(3))]
    assert len(running) == 3
    running.pop().release()
    assert in_flight.take(2) is None
    running.pop().release()
    assert in_flight.take(2)
    assert all(in_flight.take(None) for _ in range(100))
    assert in_flight.free(None) is None


LIMIT = {"type": "local-max-concurrency", "limit": 5}
WAITING = {"type": "wait-on-refuse", "gate": LIMIT}
TWO = {"type": "composite", "gates": [LIMIT, LIMIT | {"limit": 9}]}
SHARED = {"type": "constant", "shared": True}
OF_TYPE: TypeAdapter[GateSettings] = TypeAdapter(GateSettings)


class Reloads:
    """Gates that take each other's place."""

    def __init__(self) -> None:
        self._context = GateContext(prometheus=None, clock=ManualClock())

    async def gate(self, settings: Mapping[str, Any], place: str = "queue") -> Gate:
        gate = build_gate(
            OF_TYPE.validate_python(settings), self._context, workers=LiveNumber(8), place=place
        )
        await gate.start()
        return gate


async def started(gate: Gate, demand: int) -> list[Ticket]:
    verdicts = [await gate.admit(CANDIDATE) for _ in range(demand)]
    return [verdict.ticket for verdict in verdicts if isinstance(verdict, Continue)]


@pytest.mark.parametrize(
    ("before", "after", "more"),
    [
        (LIMIT, LIMIT | {"limit": 8}, 3),
        (LIMIT, LIMIT | {"limit": 2}, 0),
        (LIMIT, WAITING, 0),
        (WAITING, LIMIT | {"limit": 6}, 1),
        (TWO, LIMIT | {"limit": 7}, 2),
        (LIMIT, TWO, 0),
        (SHARED, LIMIT, 0),
        (LIMIT, SHARED, 3),
    ],
)
async def test_what_runs_counts_under_the_gate_that_comes_next(
    before: Mapping[str, Any], after: Mapping[str, Any], more: int
) -> None:
    reloads = Reloads()
    old = await reloads.gate(before)
    running = await started(old, 5)
    assert len(running) == 5
    new = await reloads.gate(after)
    assert len(await started(new, 20)) == more


async def test_what_ends_under_the_old_gate_wakes_who_waits_at_the_new_one() -> None:
    reloads, woken = Reloads(), list[int]()
    old = await reloads.gate(LIMIT)
    running = await started(old, 5)
    new = await reloads.gate(LIMIT | {"limit": 4})
    new.subscribe(lambda: woken.append(new.permits(8)))
    assert isinstance(await new.admit(CANDIDATE), Refuse)
    running[0].release()
    running[1].refund()
    assert woken == [0, 1]
    assert len(await started(new, 3)) == 1


async def test_another_place_has_a_count_of_its_own() -> None:
    reloads = Reloads()
    assert len(await started(await reloads.gate(LIMIT), 9)) == 5
    other = await reloads.gate(WAITING, place="another queue")
    assert len(await started(other, 5)) == 5
    assert isinstance(await other.admit(CANDIDATE), Wait)


async def test_a_place_is_forgotten_when_nothing_runs_there_and_no_gate_is_left() -> None:
    reloads = Reloads()
    running = await started(await reloads.gate(LIMIT), 5)
    assert len(await started(await reloads.gate(LIMIT), 5)) == 0
    for ticket in running:
        ticket.release()
    assert len(await started(await reloads.gate(LIMIT), 9)) == 5
