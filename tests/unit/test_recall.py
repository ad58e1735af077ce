"""Parked messages come back when and as many as there is room for, and none is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

import pytest

from async_processor.admission.base import OVERFLOW_LOT
from async_processor.dispatch.recall import LANE_LOTS_AT_ONCE, REST, Recaller
from async_processor.dispatch.revisits import FIRST_AFTER
from async_processor.dispatch.route import Route
from async_processor.listeners import Leave, Listeners
from async_processor.testing.clock import ManualClock
from async_processor.testing.flaky import FlakyTransport
from async_processor.testing.memory_probe import MemoryProbe
from async_processor.testing.stage import QUEUE, submit
from async_processor.transport.base import Park

INTERVAL = 5.0


class Rooms:
    """A gate or a merge policy as a recaller sees it: rooms by lot, and for which it was asked."""

    def __init__(self, rooms: Mapping[str, int] | None = None) -> None:
        self.rooms = dict(rooms or {})
        self.asked: list[str] = []
        self.looked_at: list[str] = []
        self.listeners = Listeners[...]()

    def tell(self, *lot: str) -> None:
        self.listeners.tell(*lot)

    async def room(self, lot: str) -> int | None:
        self.asked.append(lot)
        return self.rooms.get(lot)

    def lot_room(
        self, queue: object, lot: str, covered: int, coming: Mapping[str, int]
    ) -> int | None:
        self.looked_at.append(lot)
        room = self.rooms.get(lot)
        return None if room is None else max(0, max(room, covered) - sum(coming.values()))

    def on_room(self, recall: Callable[..., None]) -> Leave:
        return self.listeners.add(recall)


class Stage:
    """A recaller over a queue in memory, its time in the test's hands."""

    def __init__(self, probe: MemoryProbe, transport: FlakyTransport, clock: ManualClock) -> None:
        self.gate, self.pool_gate, self.merge = Rooms(), Rooms(), Rooms()
        self.parked = Listeners[[str]]()
        self.probe, self.transport, self.clock = probe, transport, clock
        route = SimpleNamespace(
            gate=self.gate,
            queue=SimpleNamespace(queue_name=QUEUE),
            pool=SimpleNamespace(gate=self.pool_gate, merge=self.merge),
            parked=self.parked,
        )
        self.recaller = Recaller(cast("Route", route), transport, interval=INTERVAL)

    async def park(self, lot: str, count: int) -> None:
        for number in range(count):
            await submit(self.probe, f"{lot}-{number}", seq=number)
        for delivery in await self.transport.claim(QUEUE, count, suspects=True):
            await self.transport.settle(delivery, Park(lot=lot))

    async def back(self) -> Sequence[str]:
        """Take what has come back."""
        found = await self.transport.claim(QUEUE, 100, suspects=True)
        return [delivery.request_id for delivery in found]

    async def sweep(self) -> None:
        await self.clock.advance(2 * INTERVAL)


@asynccontextmanager
async def stage(**lots: int) -> AsyncIterator[Stage]:
    clock = ManualClock()
    probe = MemoryProbe(clock)
    made = Stage(probe, FlakyTransport(await probe.replica()), clock)
    for lot, count in lots.items():
        await made.park(lot, count)
    yield made
    await probe.close()


async def running(made: Stage) -> asyncio.Task[None]:
    """Run it until it waits to be told."""
    task = asyncio.create_task(made.recaller.run())
    await made.clock.advance(REST)
    return task


async def later(made: Stage, seconds: float) -> None:
    """Let time pass; a timeout of asyncio is not the manual clock's, so somebody wakes it."""
    made.clock._monotonic += seconds
    made.gate.rooms["other"] = 0
    made.gate.tell("other")
    await made.clock.advance(REST)
    made.gate.asked = [lot for lot in made.gate.asked if lot != "other"]


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_at_the_start_lots_that_nobody_knows_go_back_whole() -> None:
    async with stage(unknown=3, known=2) as made:
        made.gate.rooms = {"known": 0}
        task = await running(made)
        assert len(await made.back()) == 3
        assert await made.transport.lots(QUEUE) == ("known",)
        await ended(task)


async def test_as_many_come_back_as_there_is_room_for_the_earliest_first() -> None:
    async with stage(a=5, b=5) as made:
        made.gate.rooms, made.pool_gate.rooms = {"a": 2}, {"b": 1}
        await made.recaller.turn()
        assert await made.back() == ["a-0", "b-0", "a-1"]


async def test_who_makes_room_is_heard_at_once_and_only_its_lot_is_looked_at() -> None:
    async with stage(a=5, b=5) as made:
        made.gate.rooms = {"a": 0, "b": 0}
        task = await running(made)
        made.gate.asked.clear()
        made.gate.rooms["a"] = 1
        made.gate.tell("a")
        await made.clock.advance(0)
        assert await made.back() == ["a-0"]
        assert set(made.gate.asked) == {"a"}
        await ended(task)


async def test_a_lot_with_more_in_it_is_looked_at_again_and_an_empty_one_is_not() -> None:
    async with stage(a=3) as made:
        made.gate.rooms = {"a": 2}
        task = asyncio.create_task(made.recaller.run())
        await made.clock.advance(0)
        assert await made.back() == ["a-0", "a-1"]
        made.gate.asked.clear()
        await made.clock.advance(REST)
        assert made.gate.asked == [], "what came back has not been admitted yet"
        await later(made, FIRST_AFTER)
        assert await made.back() == ["a-2"]
        made.gate.asked.clear()
        await later(made, INTERVAL / 2)
        assert made.gate.asked == []
        await ended(task)


async def test_what_comes_back_in_vain_comes_ever_more_rarely() -> None:
    async with stage(a=1) as made:
        made.gate.rooms = {"a": 1}
        task = await running(made)
        came = 0
        for _ in range(100):
            back = await made.transport.claim(QUEUE, 9, suspects=True)
            came += len(back)
            for delivery in back:
                await made.transport.settle(delivery, Park(lot="a"))
                made.parked.tell("a")
            await later(made, INTERVAL / 100)
        assert 3 <= came <= 15
        await ended(task)


async def test_who_parks_a_message_has_its_lot_looked_at() -> None:
    """The room may have been made while the message was on its way into the lot."""
    async with stage() as made:
        made.gate.rooms = {"a": 1}
        task = await running(made)
        await made.park("a", 1)
        made.parked.tell("a")
        await made.clock.advance(REST)
        assert await made.back() == ["a-0"]
        await ended(task)


async def test_who_parks_a_message_during_a_look_has_its_lot_looked_at_again() -> None:
    """The look may have found the lot empty just before."""
    async with stage(a=2) as made:
        made.gate.rooms = {"a": 2}
        task = await running(made)
        assert len(await made.back()) == 2
        recall = made.transport.recall

        async def recall_and_be_late(queue_name: str, lot: str, limit: int) -> int:
            count = await recall(queue_name, lot, limit)
            made.transport.recall = recall  # type: ignore[method-assign]
            await made.park("a", 1)
            made.parked.tell("a")
            return count

        made.transport.recall = recall_and_be_late  # type: ignore[method-assign]
        await later(made, FIRST_AFTER)
        for _ in range(3):
            await later(made, INTERVAL / 10)
        assert await made.back() == ["a-0"]
        await ended(task)


async def test_a_look_that_the_broker_cut_short_leaves_no_lot_forgotten() -> None:
    async with stage(a=1) as made:
        made.gate.rooms = {"a": 1}
        task = await running(made)
        assert await made.back() == ["a-0"]
        made.transport.fail("recall")
        await later(made, FIRST_AFTER)
        await later(made, 2.0)  # the pause after a failure, and the look after it
        await made.park("a", 1)
        made.parked.tell("a")
        await later(made, FIRST_AFTER)
        for _ in range(3):
            await later(made, INTERVAL / 10)
        assert await made.back() == ["a-0"]
        await ended(task)


async def test_the_gate_with_the_least_room_counts() -> None:
    async with stage(a=5) as made:
        made.gate.rooms, made.pool_gate.rooms = {"a": 4}, {"a": 1}
        await made.recaller.turn()
        assert await made.back() == ["a-0"]


async def test_a_lane_with_room_costs_the_same_however_many_lots_wait() -> None:
    tenants = [f"tenant-{number}" for number in range(500)]
    async with stage(**dict.fromkeys(tenants, 1), lane=1) as made:
        made.gate.rooms = dict.fromkeys(tenants, 0)
        made.merge.rooms = {"lane": 0}
        task = await running(made)
        for rooms in (made.gate, made.merge):
            rooms.asked.clear()
            rooms.looked_at.clear()
        made.merge.rooms["lane"] = 1
        made.merge.tell()
        await made.clock.advance(REST)
        assert await made.back() == ["lane-0"]
        assert set(made.gate.asked) == {"lane"}
        assert set(made.merge.looked_at) == {"lane"}
        await ended(task)


async def test_lots_that_share_a_lane_get_its_room_once_and_in_turn() -> None:
    lots = [f"lane-{number}" for number in range(LANE_LOTS_AT_ONCE * 2)]
    async with stage(**dict.fromkeys(lots, 2)) as made:
        made.merge.rooms = dict.fromkeys(lots, 0)
        task = await running(made)
        back = list[str]()
        for _ in range(3):
            made.merge.rooms = dict.fromkeys(lots, 3)
            made.merge.tell()
            await made.clock.advance(0)
            back += await made.back()
            assert len(back) % 3 == 0
            made.merge.rooms = dict.fromkeys(lots, 0)
            await made.clock.advance(10 * REST)
        assert len(back) == 9
        assert len({each.rpartition("-")[0] for each in back}) > 4
        await ended(task)


async def test_room_that_nobody_tells_of_is_found_by_the_sweep() -> None:
    async with stage(a=3) as made:
        made.gate.rooms = {"a": 0}
        task = await running(made)
        made.gate.rooms = {"a": 3}
        await made.clock.advance(INTERVAL / 2)
        assert await made.back() == []
        # A timeout of asyncio is not the manual clock's: somebody else's room wakes the recaller.
        made.clock._monotonic += 2 * INTERVAL
        made.gate.tell("other")
        await made.clock.advance(REST)
        assert len(await made.back()) == 3
        await ended(task)


async def test_lanes_with_room_call_back_what_is_theirs() -> None:
    async with stage(lane=3, a=2) as made:
        made.gate.rooms = {"a": 0}
        made.merge.rooms = {"lane": 0, "a": 9}
        task = await running(made)
        made.merge.rooms["lane"] = 2
        made.merge.tell()
        await made.clock.advance(0)
        assert await made.back() == ["lane-0", "lane-1"]
        await ended(task)


async def test_a_lane_with_room_wakes_nobody_while_nobody_waits_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with stage(a=2) as made:
        made.gate.rooms = {"a": 0}
        task = await running(made)
        turns = list[float]()

        async def turn() -> None:
            turns.append(made.clock.monotonic())

        monkeypatch.setattr(made.recaller, "turn", turn)
        made.merge.tell()
        await made.clock.advance(10 * REST)
        assert not turns
        made.gate.tell("a")
        await made.clock.advance(10 * REST)
        assert turns
        await ended(task)


async def test_what_may_run_as_overflow_comes_back_for_either_reason() -> None:
    lot = f"{OVERFLOW_LOT}a"
    for reserved, lanes, expected in ((2, 1, 2), (0, 3, 3), (0, 0, 0)):
        async with stage(**{lot: 5}) as made:
            made.gate.rooms, made.merge.rooms = {lot: reserved}, {lot: lanes}
            await made.recaller.turn()
            assert len(await made.back()) == expected
    async with stage(**{lot: 5}) as made:
        made.gate.rooms = {lot: 0}
        await made.recaller.turn()
        assert len(await made.back()) == 5, "no lane holds it back any more"


async def test_a_broker_that_is_away_delays_and_forgets_nothing() -> None:
    async with stage(a=3) as made:
        made.gate.rooms = {"a": 3}
        made.transport.fail("lots")
        made.transport.fail("recall")
        task = await running(made)
        await made.clock.advance(10)
        assert len(await made.back()) == 3
        await ended(task)


async def test_it_listens_to_gates_and_lanes_until_it_ends() -> None:
    async with stage() as made:
        told = [made.gate.listeners, made.pool_gate.listeners, made.merge.listeners]
        assert [len(each) for each in told] == [0, 0, 0]
        task = await running(made)
        assert [len(each) for each in told] == [1, 1, 1]
        await ended(task)
        assert [len(each) for each in told] == [0, 0, 0]
