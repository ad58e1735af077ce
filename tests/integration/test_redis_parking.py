"""Lots on Redis as state tables: parked messages keep their scores, expire, and come back."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from async_processor.redis_io.keys import lot_key, queue_keys
from async_processor.testing.messages import DEADLINE
from async_processor.testing.redis_probe import RedisProbe, redis_probe
from async_processor.testing.servers import server_binaries
from async_processor.testing.stage import (
    QUEUE,
    SHORT_LEASE,
    answer,
    claim_one,
    ids,
    reclaim,
    submit,
)
from async_processor.transport.base import Park, Settlement
from async_processor.wire.envelope import score

KEYS = queue_keys(QUEUE)
SERVERS = server_binaries()


@pytest.fixture(params=SERVERS)
async def probe(request: pytest.FixtureRequest) -> AsyncIterator[RedisProbe]:
    async with redis_probe(SERVERS[request.param]) as probe:
        yield probe


async def test_a_parked_message_waits_in_its_lot_and_is_not_claimed(probe: RedisProbe) -> None:
    body = await submit(probe, "a", seq=2)
    replica = await probe.replica()

    assert await replica.settle(await claim_one(replica), Park(lot="t {1}")) is Settlement.DONE

    assert await probe.keyspace() == {
        KEYS.lots: {b"t {1}": score(DEADLINE, 2)},
        lot_key(QUEUE, "t {1}"): {body: score(DEADLINE, 2)},
    }
    assert await replica.claim(QUEUE, 10, suspects=True) == []
    assert await replica.lots(QUEUE) == ["t {1}"]
    assert await replica.next_expiry(QUEUE) == score(DEADLINE, 2)
    backlog = await replica.backlog(QUEUE, ())
    assert (backlog.waiting, backlog.parked) == (0, 1)


async def test_recalled_messages_stand_where_they_stood(probe: RedisProbe) -> None:
    bodies = {await submit(probe, f"r-{n}", seq=n): score(DEADLINE, n) for n in (1, 2, 3)}
    replica = await probe.replica()
    for delivery in await replica.claim(QUEUE, 3, suspects=False):
        await replica.settle(delivery, Park(lot="t"))

    assert await replica.recall(QUEUE, "t", 2) == 2

    assert (await probe.waiting(KEYS.lots)) == {b"t": score(DEADLINE, 3)}
    assert await replica.recall(QUEUE, "t", 9) == 1
    assert await replica.recall(QUEUE, "nobody's", 9) == 0
    assert await probe.keyspace() == {QUEUE: bodies}


async def test_parked_messages_expire(probe: RedisProbe) -> None:
    now = await probe.now()
    for number in range(4):
        await submit(probe, f"late-{number}", deadline=now - 10 + number)
    await submit(probe, "later", deadline=DEADLINE)
    replica = await probe.replica()
    for number, delivery in enumerate(await replica.claim(QUEUE, 5, suspects=False)):
        await replica.settle(delivery, Park(lot=f"lot-{number % 2}"))

    expired = await replica.claim_expired(QUEUE, 10)

    assert ids(expired) == [f"late-{number}" for number in range(4)]
    for delivery in expired:
        await replica.settle(delivery, answer(delivery))
    assert await replica.lots(QUEUE) == ["lot-0"]
    assert await replica.next_expiry(QUEUE) == DEADLINE


async def test_parking_keeps_the_count_of_deliveries(probe: RedisProbe) -> None:
    await submit(probe, "a")
    await claim_one(await probe.replica(lease_ttl=SHORT_LEASE))
    replica = await probe.replica()
    await reclaim(replica, 1)
    await replica.settle(await claim_one(replica), Park(lot="t"))
    await replica.reclaim(QUEUE)
    await replica.recall(QUEUE, "t", 1)
    assert (await claim_one(replica)).deliveries == 1


async def test_a_lot_of_another_type_loses_nothing(probe: RedisProbe) -> None:
    body = await submit(probe, "a")
    replica = await probe.replica()
    await probe.set_key(lot_key(QUEUE, "t"), b"not a set")
    assert await replica.settle(await claim_one(replica), Park(lot="t")) is Settlement.GONE
    await replica.stop()
    assert await probe.waiting(QUEUE) == {body: float(DEADLINE)}
