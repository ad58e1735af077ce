"""The Redis transport while the broker is away, answers get lost, or memory is full."""

from __future__ import annotations

import asyncio
import math
import os
import signal
from collections.abc import AsyncIterator, Iterator

import pytest

from async_processor.errors import BrokerUnavailable
from async_processor.redis_io.keys import queue_keys
from async_processor.redis_io.outage import Outage
from async_processor.redis_io.scripts import CLAIM, SETTLE
from async_processor.testing.eventually import eventually
from async_processor.testing.proxy import BadNetwork, bad_network
from async_processor.testing.redis_probe import RedisProbe, probing
from async_processor.testing.servers import RedisServer, server_binaries
from async_processor.testing.stage import (
    QUEUE,
    SHORT_LEASE,
    answer,
    claim_one,
    ids,
    reclaim,
    submit,
)
from async_processor.transport.base import Bury, Delivery, Release, Retry, Settlement
from async_processor.transport.redis_sorted_set import RedisSortedSet

SERVERS = server_binaries()


@pytest.fixture(params=SERVERS)
def durable_server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    args = ["--appendonly", "yes", "--appendfsync", "always"]
    with RedisServer(SERVERS[request.param], args) as server:
        yield server


@pytest.fixture
async def network(durable_server: RedisServer) -> AsyncIterator[BadNetwork]:
    async with bad_network(durable_server.port) as network:
        yield network


@pytest.fixture
async def probe(durable_server: RedisServer, network: BadNetwork) -> AsyncIterator[RedisProbe]:
    """Looks at the server directly; its replicas go through the network."""
    replica_url = f"redis://127.0.0.1:{network.port}/0"
    async with probing(durable_server.url, replica_url=replica_url) as probe:
        yield probe


async def warmed_up(probe: RedisProbe, *, lease_ttl: float = 60.0) -> RedisSortedSet:
    """A replica whose scripts the server knows, so that calls name them by digest."""
    replica = await probe.replica(lease_ttl=lease_ttl)
    await submit(probe, "warm-up", queue="warm-up")
    delivery = await claim_one(replica, "warm-up")
    await replica.settle(delivery, answer(delivery, "warm-up-results"))
    return replica


async def test_messages_of_a_lost_claim_are_claimed_again(
    probe: RedisProbe, network: BadNetwork
) -> None:
    replica = await warmed_up(probe)
    for number in range(1, 6):
        await submit(probe, f"r-{number}", seq=number)
    network.lose_answer_to(CLAIM.digest.encode())

    with pytest.raises(BrokerUnavailable):
        await replica.claim(QUEUE, 3, suspects=False)

    assert network.lost_answers == 1
    assert len(await probe.waiting(QUEUE)) == 2, "the claim was executed"
    again = await replica.claim(QUEUE, 4, suspects=False)
    assert ids(again) == ["r-1", "r-2", "r-3", "r-4"]
    assert {delivery.deliveries for delivery in again} == {0}
    leased = await probe.waiting(queue_keys(QUEUE).leases)
    assert set(leased) == {delivery.token.encode() for delivery in again}


async def test_messages_of_a_lost_claim_return_although_nobody_claims_again(
    probe: RedisProbe, network: BadNetwork
) -> None:
    """As behind a gate that has closed meanwhile: only the expiry is looked at."""
    replica = await warmed_up(probe)
    bodies = {await submit(probe, f"r-{number}", seq=number) for number in range(1, 6)}
    network.lose_answer_to(CLAIM.digest.encode())
    with pytest.raises(BrokerUnavailable):
        await replica.claim(QUEUE, 3, suspects=False)

    assert await replica.next_expiry(QUEUE) is not None

    assert set(await probe.waiting(QUEUE)) == bodies
    keys = queue_keys(QUEUE)
    assert set(await probe.keyspace()) == {QUEUE, "warm-up-results"}, "uncounted"
    assert not await probe.waiting(keys.leases)


async def test_a_lost_claim_that_is_executed_late_is_given_back_too(
    probe: RedisProbe, network: BadNetwork
) -> None:
    replica = await warmed_up(probe)
    network.lose_answer_to(CLAIM.digest.encode())
    with pytest.raises(BrokerUnavailable):
        await replica.claim(QUEUE, 1, suspects=False)
    assert not await replica.claim(QUEUE, 1, suspects=False)
    await submit(probe, "late")
    # What the server would do if the lost claim had still waited in its buffer:
    (lost_prefix,) = replica._claims[QUEUE]._unanswered
    keys = queue_keys(QUEUE)
    names = (keys.queue, keys.claims, keys.leases, keys.deliveries)
    await CLAIM.run(probe.client, names, (lost_prefix, 1, 1000, 60_000, "+inf", 0, 2))
    assert not await probe.waiting(QUEUE)

    assert ids(await replica.claim(QUEUE, 1, suspects=False)) == ["late"]


async def test_a_settlement_whose_answer_was_lost_is_done_once(
    probe: RedisProbe, network: BadNetwork
) -> None:
    replica = await warmed_up(probe)
    await submit(probe, "a")
    delivery = await claim_one(replica)
    network.lose_answer_to(SETTLE.digest.encode())

    assert await replica.settle(delivery, answer(delivery)) is Settlement.DONE

    assert network.lost_answers == 1
    assert len(await probe.results("result-list")) == 1


async def test_results_are_kept_while_the_broker_is_away(
    probe: RedisProbe, network: BadNetwork, durable_server: RedisServer
) -> None:
    replica = await warmed_up(probe)
    for number in range(20):
        await submit(probe, f"r-{number}")
    deliveries = await replica.claim(QUEUE, 20, suspects=False)
    network.down()
    settlements = [asyncio.create_task(replica.settle(d, answer(d))) for d in deliveries]
    with pytest.raises(BrokerUnavailable):
        await replica.ping()
    settlements[0].cancel()
    await asyncio.to_thread(durable_server.restart)
    assert not any(task.done() and not task.cancelled() for task in settlements)

    network.up()

    assert set(await asyncio.gather(*settlements[1:])) == {Settlement.DONE}
    assert len(await probe.results("result-list")) == 20, "a cancelled caller's result as well"
    await replica.ping()


async def test_a_restart_loses_nothing_and_frees_nothing(
    probe: RedisProbe, durable_server: RedisServer
) -> None:
    replica = await warmed_up(probe)
    await submit(probe, "a", seq=1)
    await submit(probe, "b", seq=2)
    (delivery,) = await replica.claim(QUEUE, 1, suspects=False)

    await asyncio.to_thread(durable_server.kill)
    await asyncio.to_thread(durable_server.start)

    async def extended() -> bool:
        try:
            return await replica.extend([delivery]) == set()
        except BrokerUnavailable:
            return False

    await eventually(extended)
    assert ids(await replica.claim(QUEUE, 9, suspects=False)) == ["b"]
    assert await replica.settle(delivery, answer(delivery)) is Settlement.DONE


async def test_after_an_outage_nothing_is_taken_back_for_half_a_lease(
    probe: RedisProbe, network: BadNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = await probe.replica(lease_ttl=1.0)
    reaper = await probe.replica(lease_ttl=60.0)
    reaper._link.server_started_at = -math.inf
    await submit(probe, "a")
    delivery = await claim_one(holder)
    network.down()
    for replica in (holder, reaper):
        with pytest.raises(BrokerUnavailable):
            await replica.ping()
    await eventually(lambda: lease_ended(probe, delivery))
    network.up()

    assert await reaper.reclaim(QUEUE) == 0, "the holder must have its chance to extend"

    assert not await holder.extend([delivery])
    await eventually(lambda: lease_ended(probe, delivery))
    monkeypatch.setattr(Outage, "seconds_since_return", 29.9)
    assert await reaper.reclaim(QUEUE) == 0
    monkeypatch.setattr(Outage, "seconds_since_return", 30.0)

    async def taken() -> int:
        return await reaper.reclaim(QUEUE)

    assert await eventually(taken) == 1


async def test_after_the_servers_start_a_new_replica_takes_nothing_back_for_half_a_lease(
    probe: RedisProbe, durable_server: RedisServer
) -> None:
    """It has seen no outage, and yet all leases have ended in one."""
    holder = await probe.replica(lease_ttl=SHORT_LEASE)
    await submit(probe, "a")
    delivery = await claim_one(holder)
    await asyncio.to_thread(durable_server.kill)
    await asyncio.to_thread(durable_server.start)
    reaper = await probe.replica(lease_ttl=60.0, fresh=True)
    reaper._link.opened_at = -math.inf
    await eventually(lambda: lease_ended(probe, delivery))

    assert await reaper.reclaim(QUEUE) == 0

    assert not await holder.extend([delivery]), "it had its chance"
    reaper._link.server_started_at -= 30
    await reclaim(reaper, 1)


async def test_a_new_replica_spares_what_had_ended_before_its_start_for_half_a_lease(
    probe: RedisProbe,
) -> None:
    """The network may have failed for all until then."""
    holder = await probe.replica(lease_ttl=SHORT_LEASE)
    await submit(probe, "cut-off", seq=1)
    cut_off = await claim_one(holder)
    await eventually(lambda: lease_ended(probe, cut_off))
    reaper = await probe.replica(lease_ttl=60.0, fresh=True)
    reaper._link.server_started_at = -math.inf
    assert await reaper.reclaim(QUEUE) == 0
    await submit(probe, "dead", seq=2)
    await claim_one(holder)

    await reclaim(reaper, 1)

    assert ids(await reaper.claim(QUEUE, 9, suspects=False)) == ["dead"]
    assert not await holder.extend([cut_off])


async def lease_ended(probe: RedisProbe, delivery: Delivery) -> bool:
    ends = await probe.waiting(queue_keys(QUEUE).leases)
    return ends[delivery.token.encode()] / 1000 < await probe.now()


async def test_start_waits_for_a_broker_that_is_away(
    probe: RedisProbe, network: BadNetwork
) -> None:
    network.down()
    replica = probe.stopped_replica()
    starting = asyncio.create_task(replica.start())
    with pytest.raises(BrokerUnavailable):
        await replica.ping()
    assert not starting.done()
    network.up()
    await starting
    await replica.ping()


async def test_stop_does_not_wait_for_ever_for_a_broker_that_is_away(
    probe: RedisProbe, network: BadNetwork
) -> None:
    replica = await probe.replica(lease_ttl=SHORT_LEASE)
    await submit(probe, "a")
    delivery = await claim_one(replica)
    network.down()
    settling = asyncio.create_task(replica.settle(delivery, answer(delivery)))
    await asyncio.sleep(0)

    async with asyncio.timeout(60):
        await replica.stop()

    assert await settling is Settlement.GONE


async def test_stop_does_not_wait_long_for_a_broker_that_hangs(
    probe: RedisProbe, durable_server: RedisServer
) -> None:
    replica = await probe.replica()
    await submit(probe, "a")
    delivery = await claim_one(replica)
    os.kill(durable_server.pid, signal.SIGSTOP)
    try:
        settling = asyncio.create_task(replica.settle(delivery, answer(delivery)))
        await asyncio.sleep(0)
        async with asyncio.timeout(4):  # of which it may take one; a single command may take 5
            await replica.stop()
    finally:
        os.kill(durable_server.pid, signal.SIGCONT)
    assert await settling is Settlement.GONE


@pytest.mark.parametrize("binary", SERVERS.values(), ids=SERVERS)
async def test_everything_that_frees_memory_works_when_memory_is_full(binary: str) -> None:
    with RedisServer(binary) as server:
        async with probing(server.url) as probe:
            replica = await probe.replica(lease_ttl=SHORT_LEASE)
            for number in range(6):
                await submit(probe, f"r-{number}", seq=number + 1)
            post, retry, release, bury, lost = await replica.claim(QUEUE, 5, suspects=False)
            await probe.client.execute("CONFIG", "SET", "maxmemory", 1)
            with pytest.raises(BrokerUnavailable):
                await submit(probe, "one-too-many")

            assert await replica.extend([post]) == set()
            for delivery, outcome in (
                (post, answer(post)),
                (retry, Retry(body=b"{}", due_at=1.0)),
                (release, Release()),
                (bury, Bury(reason="poison", post=answer(bury))),
            ):
                assert await replica.settle(delivery, outcome) is Settlement.DONE
            await eventually(lambda: lease_ended(probe, lost))
            assert await replica.reclaim(QUEUE) == 1
            await replica.promote_retries()
            assert len(await replica.claim(QUEUE, 10, suspects=False)) == 4
            assert len(await probe.results("result-list")) == 2
