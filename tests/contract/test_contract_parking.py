"""Contract: parked messages stand apart from their queue, and come back as they were."""

from __future__ import annotations

import asyncio

import pytest

from async_processor.testing.messages import DEADLINE
from async_processor.testing.probe import BrokerProbe, Capability
from async_processor.testing.stage import (
    QUEUE,
    RESULTS,
    answer,
    claim_one,
    ids,
    lose,
    submit,
)
from async_processor.transport.base import Park, Settlement, Transport
from async_processor.wire.envelope import score

pytestmark = pytest.mark.needs(Capability.LOTS)

FOREVER = 600.0
SOON = 60.0

LOT = 'quota {a}: team "é"'
"""Tenants have any name."""


async def park(replica: Transport, count: int, lot: str = LOT) -> None:
    deliveries = await replica.claim(QUEUE, count, suspects=True)
    assert len(deliveries) == count
    for delivery in deliveries:
        assert await replica.settle(delivery, Park(lot=lot)) is Settlement.DONE


async def test_a_parked_message_is_not_claimed_and_keeps_nobody_awake(
    probe: BrokerProbe, replica: Transport
) -> None:
    await submit(probe, "r-1")
    await park(replica, 1)
    assert not await replica.claim(QUEUE, 10, suspects=True)
    assert not await replica.claim_expired(QUEUE, 10)
    assert not await replica.wait_for_work(QUEUE, 0.1)
    for each in (replica, await probe.replica()):
        assert list(await each.lots(QUEUE)) == [LOT]


async def test_a_recall_wakes_and_brings_the_earliest_back(
    probe: BrokerProbe, replica: Transport
) -> None:
    for number in (3, 1, 2):
        await submit(probe, f"r-{number}", seq=number)
    await park(replica, 3)
    other = await probe.replica()
    waiting = asyncio.create_task(other.wait_for_work(QUEUE, FOREVER))
    assert await other.recall(QUEUE, LOT, 2) == 2
    assert await asyncio.wait_for(waiting, SOON)
    claimed = await other.claim(QUEUE, 10, suspects=False)
    assert ids(claimed) == ["r-1", "r-2"]
    assert [delivery.score for delivery in claimed] == [score(DEADLINE, 1), score(DEADLINE, 2)]
    assert await other.recall(QUEUE, LOT, 100) == 1
    assert await other.recall(QUEUE, LOT, 100) == 0
    assert await other.recall(QUEUE, "nobody's", 100) == 0
    assert not await other.lots(QUEUE)


async def test_a_whole_lot_comes_back(probe: BrokerProbe, replica: Transport) -> None:
    for number in range(300):
        await submit(probe, f"r-{number}", seq=number)
    await park(replica, 300)
    assert await replica.recall(QUEUE, LOT, 1_000_000) == 300
    assert ids(await replica.claim(QUEUE, 500, suspects=False)) == [f"r-{n}" for n in range(300)]


async def test_lots_are_apart_and_so_are_queues(probe: BrokerProbe, replica: Transport) -> None:
    for number in range(2):
        await submit(probe, f"r-{number}", seq=number)
        await park(replica, 1, f"lot-{number}")
    assert sorted(await replica.lots(QUEUE)) == ["lot-0", "lot-1"]
    assert not await replica.lots("other-sortedset")
    assert await replica.recall("other-sortedset", "lot-0", 10) == 0
    assert await replica.recall(QUEUE, "lot-1", 10) == 1
    assert (await claim_one(replica)).request_id == "r-1"


async def test_parking_is_fenced_by_the_token(probe: BrokerProbe, replica: Transport) -> None:
    await submit(probe, "r-1")
    delivery = await claim_one(replica)
    await replica.settle(delivery, answer(delivery))
    assert await replica.settle(delivery, Park(lot=LOT)) is Settlement.GONE
    assert not await replica.lots(QUEUE)


async def test_parked_messages_expire_in_order_and_the_others_stay(
    probe: BrokerProbe, replica: Transport
) -> None:
    now = await probe.now()
    for number in range(4):
        await submit(probe, f"late-{number}", deadline=now - 10 + number)
    await submit(probe, "later")
    for number in range(5):
        await park(replica, 1, f"lot-{number % 2}")
    await submit(probe, "in-the-queue", deadline=now - 8.5)
    expired = await replica.claim_expired(QUEUE, 10)
    assert ids(expired) == ["late-0", "late-1", "in-the-queue", "late-2", "late-3"]
    assert list(await replica.lots(QUEUE)) == ["lot-0"]
    assert await replica.next_expiry(QUEUE) == DEADLINE


async def test_more_expired_messages_than_one_look_takes(
    probe: BrokerProbe, replica: Transport
) -> None:
    now = await probe.now()
    for number in range(5):
        await submit(probe, f"late-{number}", deadline=now - 10 + number)
    await park(replica, 5)
    found: list[str] = []
    while expired := await replica.claim_expired(QUEUE, 2):
        assert len(expired) <= 2
        found += ids(expired)
    assert found == [f"late-{number}" for number in range(5)]


async def test_a_suspect_expires_in_its_lot_too(probe: BrokerProbe, replica: Transport) -> None:
    await submit(probe, "r-1", deadline=await probe.now() - 1)
    await lose(probe, 1, times=2)
    await park(replica, 1)
    (expired,) = await replica.claim_expired(QUEUE, 10)
    assert expired.deliveries == 2


@pytest.mark.needs(Capability.SCORES)
async def test_parking_keeps_the_score_and_the_count_of_deliveries(
    probe: BrokerProbe, replica: Transport
) -> None:
    body = await submit(probe, "r-1", seq=7)
    await lose(probe, 1)
    await park(replica, 1)
    assert await replica.reclaim(QUEUE) == 0
    assert await replica.recall(QUEUE, LOT, 1) == 1
    assert await probe.waiting(QUEUE) == {body: score(DEADLINE, 7)}
    assert (await claim_one(replica)).deliveries == 1


async def test_the_next_expiry_is_the_earliest_also_in_a_lot(
    probe: BrokerProbe, replica: Transport
) -> None:
    await submit(probe, "first", deadline=DEADLINE)
    await park(replica, 1)
    await submit(probe, "second", deadline=DEADLINE + 10)
    assert await replica.next_expiry(QUEUE) == DEADLINE
    await replica.recall(QUEUE, LOT, 1)
    await replica.claim(QUEUE, 1, suspects=False)
    assert await replica.next_expiry(QUEUE) == DEADLINE + 10


@pytest.mark.needs(Capability.BACKLOG, Capability.SCORES)
async def test_the_backlog_counts_what_is_parked(probe: BrokerProbe, replica: Transport) -> None:
    now = await probe.now()
    for number, seconds in enumerate((100, 200, 5000)):
        await submit(probe, f"r-{number}", deadline=now + seconds)
        await park(replica, 1, f"lot-{number % 2}")
    await submit(probe, "waits", deadline=now + 250)
    backlog = await replica.backlog(QUEUE, (150_000, 1_000_000))
    assert (backlog.waiting, backlog.parked, backlog.leased) == (1, 3, 0)
    assert backlog.deadlines == (1, 3, 4)
    assert backlog.oldest_deadline == pytest.approx(now + 100)


async def test_a_stopped_replica_leaves_parked_messages_parked(
    probe: BrokerProbe, replica: Transport
) -> None:
    await submit(probe, "r-1")
    dying = await probe.replica()
    await park(dying, 1)
    await dying.stop()
    assert not await replica.claim(QUEUE, 10, suspects=True)
    assert await replica.recall(QUEUE, LOT, 1) == 1
    delivery = await claim_one(replica)
    await replica.settle(delivery, answer(delivery))
    assert len(await probe.results(RESULTS)) == 1
