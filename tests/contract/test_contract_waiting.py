"""Contract: who waits for work is woken, and the broker can say what lies in it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from async_processor.testing.eventually import eventually
from async_processor.testing.messages import DEADLINE, message
from async_processor.testing.probe import BrokerProbe, Capability
from async_processor.testing.stage import (
    QUEUE,
    SHORT_LEASE,
    answer,
    claim_one,
    leases_end,
    submit,
)
from async_processor.transport.base import Bury, Release, Retry, Transport
from async_processor.wire.envelope import Envelope, score

FOREVER = 600.0
"""A wait that no test reaches the end of."""

SOON = 60.0
"""Far above what a wake-up takes, far below `FOREVER`."""


async def test_a_broker_that_is_there_answers_a_ping(replica: Transport) -> None:
    await replica.ping()


async def test_there_is_nothing_to_wait_for_in_a_filled_queue(
    probe: BrokerProbe, replica: Transport
) -> None:
    await submit(probe, "r-1")
    async with asyncio.timeout(SOON):
        assert await replica.wait_for_work(QUEUE, FOREVER)


async def test_a_publish_wakes_who_waits(probe: BrokerProbe, replica: Transport) -> None:
    waiting = asyncio.create_task(replica.wait_for_work(QUEUE, FOREVER))
    await asyncio.sleep(0)
    assert not waiting.done()
    await submit(probe, "r-1")
    assert await asyncio.wait_for(waiting, SOON)


@pytest.mark.needs(Capability.PROMPT)
async def test_a_publish_wakes_every_replica(probe: BrokerProbe) -> None:
    waiting = [
        asyncio.create_task((await probe.replica()).wait_for_work(QUEUE, FOREVER)) for _ in range(3)
    ]
    await submit(probe, "r-1")
    assert await asyncio.wait_for(asyncio.gather(*waiting), SOON) == [True] * 3


async def test_publishes_wake_again_and_again(probe: BrokerProbe, replica: Transport) -> None:
    for number in range(5):
        waiting = asyncio.create_task(replica.wait_for_work(QUEUE, FOREVER))
        await submit(probe, f"r-{number}")
        assert await asyncio.wait_for(waiting, SOON)
        delivery = await claim_one(replica)
        await replica.settle(delivery, answer(delivery))


async def test_another_queues_publish_wakes_nobody(probe: BrokerProbe, replica: Transport) -> None:
    waiting = asyncio.create_task(replica.wait_for_work(QUEUE, 0.3))
    await submit(probe, "r-1", queue="other-sortedset")
    assert not await asyncio.wait_for(waiting, SOON)


async def test_waiting_ends_without_work_after_its_time(replica: Transport) -> None:
    loop = asyncio.get_running_loop()
    started = loop.time()
    assert not await replica.wait_for_work(QUEUE, 0.3)
    assert loop.time() - started >= 0.25


async def test_a_wait_can_be_cancelled(replica: Transport, probe: BrokerProbe) -> None:
    waiting = asyncio.create_task(replica.wait_for_work(QUEUE, FOREVER))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(waiting, SOON)
    await submit(probe, "r-1")
    assert await asyncio.wait_for(replica.wait_for_work(QUEUE, FOREVER), SOON)


async def test_what_comes_back_wakes_too(probe: BrokerProbe, replica: Transport) -> None:
    await submit(probe, "r-1")
    other = await probe.replica()
    delivery = await claim_one(other)
    waiting = asyncio.create_task(replica.wait_for_work(QUEUE, FOREVER))
    await other.settle(delivery, Release())
    assert await asyncio.wait_for(waiting, SOON)

    dying = await probe.replica(lease_ttl=SHORT_LEASE)
    await claim_one(dying)
    waiting = asyncio.create_task(replica.wait_for_work(QUEUE, FOREVER))
    await leases_end(probe, other, 1)
    assert await asyncio.wait_for(waiting, SOON)

    delivery = await claim_one(other)
    assert isinstance(delivery.message, Envelope)
    body = delivery.message.rewritten(retry_count=1, request_queue_name=QUEUE)
    waiting = asyncio.create_task(replica.wait_for_work(QUEUE, FOREVER))
    await other.settle(delivery, Retry(body=body, due_at=await probe.now()))

    async def promoted() -> bool:
        return await other.promote_retries() is None

    await eventually(promoted)
    assert await asyncio.wait_for(waiting, SOON)


@pytest.mark.needs(Capability.SCORES)
async def test_the_next_expiry_is_the_earliest_score(
    probe: BrokerProbe, replica: Transport
) -> None:
    assert await replica.next_expiry(QUEUE) is None
    await submit(probe, "later", deadline=DEADLINE + 500)
    await submit(probe, "sooner", deadline=DEADLINE, seq=1)
    assert await replica.next_expiry(QUEUE) == score(DEADLINE, 1)
    await replica.claim(QUEUE, 1, suspects=False)
    assert await replica.next_expiry(QUEUE) == DEADLINE + 500


@pytest.mark.needs(Capability.BACKLOG)
async def test_an_empty_backlog(replica: Transport) -> None:
    backlog = await replica.backlog(QUEUE, (0, 1000))
    assert (backlog.waiting, backlog.leased, backlog.parked) == (0, 0, 0)
    assert (backlog.retries_due, backlog.dead_letters) == (0, 0)
    assert backlog.oldest_deadline is None
    assert backlog.deadlines == (0, 0, 0)


@pytest.mark.needs(Capability.BACKLOG)
async def test_the_backlog_counts_each_request_where_it_is(
    probe: BrokerProbe, replica: Transport
) -> None:
    for number in range(6):
        await submit(probe, f"r-{number}", seq=number + 1)
    to_retry, to_bury, _ = await replica.claim(QUEUE, 3, suspects=False)
    due_at = await probe.now()
    await replica.settle(to_retry, Retry(body=message("r-0"), due_at=due_at))
    await replica.settle(to_bury, Bury(reason="for the count"))
    backlog = await (await probe.replica()).backlog(QUEUE, ())
    assert (backlog.waiting, backlog.leased, backlog.parked) == (3, 1, 0)
    assert (backlog.retries_due, backlog.dead_letters) == (1, 1)
    assert backlog.deadlines == (3,)


@pytest.mark.needs(Capability.BACKLOG, Capability.SCORES)
async def test_the_backlog_tells_how_far_the_deadlines_are(
    probe: BrokerProbe, replica: Transport
) -> None:
    now = await probe.now()
    for number, seconds in enumerate((-50, 100, 200, 200, 5000)):
        await submit(probe, f"r-{number}", deadline=now + seconds)
    backlog = await replica.backlog(QUEUE, (0, 150_000, 1_000_000))
    assert backlog.deadlines == (1, 2, 4, 5)
    assert backlog.oldest_deadline == pytest.approx(now - 50)


@pytest.mark.needs(Capability.BACKLOG, Capability.SCORES)
async def test_the_backlog_tells_how_old_the_request_is_that_is_next(
    probe: BrokerProbe, replica: Transport
) -> None:
    now = await probe.now()
    await submit(probe, "later", deadline=now + 900, created=now - 500)
    await submit(probe, "next", deadline=now + 600, created=now - 100)
    assert (await replica.backlog(QUEUE, ())).oldest_age == pytest.approx(100, abs=60)
    await replica.claim(QUEUE, 1, suspects=False)
    assert (await replica.backlog(QUEUE, ())).oldest_age == pytest.approx(500, abs=60)


@pytest.mark.needs(Capability.BACKLOG, Capability.SCORES)
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"created": None},
        {"created": "yesterday"},
        {"created": 1_764_044_000, "payload": {"prompt": "x" * 64 * 1024}},
    ],
    ids=["none", "null", "no time", "large"],
)
async def test_a_request_that_tells_no_age_or_is_large_has_none(
    probe: BrokerProbe, replica: Transport, fields: Mapping[str, Any]
) -> None:
    await submit(probe, "next", **fields)
    await submit(probe, "later", deadline=DEADLINE + 1, created=1_764_044_000)
    backlog = await replica.backlog(QUEUE, ())
    assert (backlog.waiting, backlog.oldest_age) == (2, None)


@pytest.mark.needs(Capability.BACKLOG, Capability.SCORES)
async def test_a_sender_whose_clock_is_ahead_makes_no_negative_age(
    probe: BrokerProbe, replica: Transport
) -> None:
    await submit(probe, "next", created=await probe.now() + 3600)
    assert (await replica.backlog(QUEUE, ())).oldest_age == 0
