"""Seats that come before slots: turns go by the lanes, and overflow may be looked at again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from async_processor.admission.base import Classification, Gate
from async_processor.admission.constant import ConstantGate
from async_processor.admission.live_number import LiveNumber
from async_processor.clock import SystemClock
from async_processor.dispatch.merge.base import Ready
from async_processor.dispatch.merge.tier_priority import TierPriority
from async_processor.dispatch.pool import Pool
from async_processor.dispatch.seat import Seat, Stand
from async_processor.dispatch.second_look import SecondLook
from async_processor.dispatch.settings import QueueSettings
from async_processor.listeners import Leave, Listeners
from async_processor.telemetry.metrics import Metrics
from async_processor.wire.request import Request

QUEUE = QueueSettings(queue_name="q", igw_base_url="http://x", labels={"tier": "batch"})


class Bell:
    """The one thing that a second look wants of a gate."""

    def __init__(self) -> None:
        self.listeners = Listeners[[str]]()

    def ring(self, lot: str) -> None:
        self.listeners.tell(lot)

    def on_room(self, recall: Callable[[str], None]) -> Leave:
        return self.listeners.add(recall)


def pool(workers: int) -> Pool:
    return Pool(
        "default",
        LiveNumber(workers),
        ConstantGate(),
        TierPriority(workers=workers, tier_label="tier"),
        Metrics().pool("default"),
        SystemClock(),
    )


def ready(classification: Classification, deadline: float = 10.0, lot: str = "lot") -> Ready:
    request = Request(id="r", deadline=deadline, payload=b"{}")
    return Ready(queue=QUEUE, request=request, since=0.0, classification=classification, lot=lot)


async def seat(of: Pool) -> Seat:
    (granted,) = await of.acquire(QUEUE, 1, 5.0)
    return granted


async def busy(of: Pool) -> Seat:
    """A seat that has taken a slot."""
    taken = await seat(of)
    assert await taken.wait_for_turn(ready(Classification.OVERFLOW), 5.0) is None
    assert taken.has_slot
    taken.dispatched()
    return taken


async def test_a_slot_that_comes_free_goes_to_the_highest_lane() -> None:
    one = pool(2)
    running, _ = await busy(one), await busy(one)
    low = await seat(one)
    waiting_low = asyncio.create_task(low.wait_for_turn(ready(Classification.OVERFLOW), 5.0))
    await asyncio.sleep(0)
    running.leave()
    high = await seat(one)
    waiting_high = asyncio.create_task(high.wait_for_turn(ready(Classification.RESERVED), 5.0))
    assert await waiting_high is None
    assert high.has_slot
    assert not low.has_slot
    high.leave()
    assert await waiting_low is None
    assert low.has_slot


async def test_a_wait_that_ends_without_a_turn_leaves_the_lane() -> None:
    one = pool(1)
    running = await busy(one)
    late = await seat(one)
    with pytest.raises(TimeoutError):
        await late.wait_for_turn(ready(Classification.OVERFLOW), 0.01)
    late.leave()
    running.leave()
    assert one.free_slots == 1
    await busy(one)
    assert one.free_slots == 0


async def test_a_full_lane_names_the_lot() -> None:
    one = pool(1)
    await busy(one)
    first = await seat(one)
    waiting = asyncio.create_task(first.wait_for_turn(ready(Classification.OVERFLOW), 5.0))
    await asyncio.sleep(0)
    assert one.merge.add(ready(Classification.OVERFLOW), 0.0) == "lot"
    waiting.cancel()


async def test_room_in_a_quota_wakes_the_earliest_overflow_and_no_other() -> None:
    one, bell = pool(6), Bell()
    looks = SecondLook(cast("Gate", bell))
    running = [await busy(one) for _ in range(6)]
    early, late = ready(Classification.OVERFLOW, 10.0), ready(Classification.RESERVED, 20.0)
    seats = [await seat(one), await seat(one)]
    waits = []
    for each, request in zip(seats, (early, late), strict=True):
        looks.wait("lot", request.request.deadline, each)
        waits.append(asyncio.create_task(each.wait_for_turn(request, 5.0)))
    await asyncio.sleep(0)
    bell.ring("another lot")
    bell.ring("lot")
    assert await waits[0] is None
    assert not seats[0].has_slot  # it asks its gate again, without a slot
    assert not waits[1].done()
    looks.leave("lot", seats[0])
    bell.ring("lot")
    assert await waits[1] is None
    looks.leave("lot", seats[1])
    bell.ring("lot")  # nobody waits any more
    for each in (*seats, *running):
        each.leave()
    assert one.free_slots == 6


async def test_room_for_two_wakes_two() -> None:
    """Also when both hear of it before either has moved."""
    one, bell = pool(6), Bell()
    looks = SecondLook(cast("Gate", bell))
    for _ in range(6):
        await busy(one)
    seats = [await seat(one), await seat(one), await seat(one)]
    waits = []
    for number, each in enumerate(seats):
        looks.wait("lot", float(number), each)
        waits.append(asyncio.create_task(each.wait_for_turn(ready(Classification.OVERFLOW), 5.0)))
    await asyncio.sleep(0)
    bell.ring("lot")
    bell.ring("lot")
    await asyncio.gather(*waits[:2])
    assert [each.stand for each in seats] == [Stand.CLAIMING, Stand.CLAIMING, Stand.LANE]
    for each in seats:
        looks.leave("lot", each)
    assert not len(bell.listeners)
    waits[2].cancel()


def test_a_second_look_listens_as_long_as_somebody_waits_for_it() -> None:
    bell, some_seat = Bell(), cast("Seat", object())
    looks = SecondLook(cast("Gate", bell))
    looks.wait("a", 10.0, some_seat)
    looks.wait("b", 10.0, some_seat)
    assert len(bell.listeners) == 1
    looks.leave("a", some_seat)
    assert len(bell.listeners) == 1
    looks.leave("b", some_seat)
    assert not len(bell.listeners)


class Surplus:
    """A pool of two: one worker is busy, one runs a covered request of tenant A, and surplus waits,
    B's before A's."""

    async def prepare(self) -> Surplus:
        self.pool = pool(2)
        await busy(self.pool)
        self.covered = await seat(self.pool)
        await self.covered.wait_for_turn(ready(Classification.RESERVED, lot="A"), 5.0)
        self.covered.dispatched()
        self.others, self.waits_b = await self._waiting("B")
        self.own, self.waits_a = await self._waiting("A")
        return self

    async def _waiting(self, lot: str) -> tuple[Seat, asyncio.Task[str | None]]:
        waiting, request = await seat(self.pool), ready(Classification.OVERFLOW, lot=lot)
        task = asyncio.create_task(waiting.wait_for_turn(request, 5.0))
        await asyncio.sleep(0)
        return waiting, task

    def covered_ends(self) -> None:
        """And slots are offered now."""
        self.covered.leave()
        self.pool.publish_gate()


async def test_the_slot_of_a_covered_request_is_kept_for_the_next_of_its_tenant() -> None:
    surplus = await Surplus().prepare()
    surplus.covered_ends()
    assert surplus.pool.free_slots == 1
    surplus.own.look_again()  # its quota has room again
    await surplus.waits_a
    assert await surplus.own.wait_for_turn(ready(Classification.RESERVED, lot="A"), 5.0) is None
    assert surplus.own.has_slot
    assert not surplus.others.has_slot
    surplus.own.leave()
    await surplus.waits_b


async def test_a_slot_that_nobody_comes_for_is_not_kept_for_long() -> None:
    surplus = await Surplus().prepare()
    surplus.covered_ends()
    await surplus.waits_b
    assert surplus.others.has_slot
    surplus.others.leave()
    await surplus.waits_a


async def test_no_slot_is_kept_where_no_surplus_of_the_tenant_waits() -> None:
    surplus = await Surplus().prepare()
    surplus.own.leave()
    surplus.waits_a.cancel()
    await asyncio.sleep(0)
    surplus.covered_ends()
    assert surplus.others.has_slot
