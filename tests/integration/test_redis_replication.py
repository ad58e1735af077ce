"""A master with a replica: what counts as safe from a failover, and what is done when it is not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from async_processor.errors import BrokerUnavailable
from async_processor.producer import Confirm, Producer, Submission, Unconfirmed
from async_processor.redis_io.client import RedisClient
from async_processor.redis_io.connect import open_client
from async_processor.testing.eventually import eventually
from async_processor.testing.proxy import bad_network
from async_processor.testing.redis_probe import RedisProbe, probing
from async_processor.testing.servers import RedisServer, server_binaries
from async_processor.testing.stage import QUEUE, answer, claim_one, submit
from async_processor.transport.base import Settlement
from async_processor.transport.redis_sorted_set import RedisSortedSet
from async_processor.transport.settings import RedisSettings

SERVERS = server_binaries()
SOON = Confirm(replicas=1, timeout=0.2)
PATIENT = Confirm(replicas=1, timeout=60)


@pytest.fixture(params=SERVERS)
def binary(request: pytest.FixtureRequest) -> str:
    return SERVERS[request.param]


@pytest.fixture
def master(binary: str) -> Iterator[RedisServer]:
    with RedisServer(binary, ["--repl-diskless-sync-delay", "0"]) as server:
        yield server


@pytest.fixture
def replica(binary: str, master: RedisServer) -> Iterator[RedisServer]:
    with RedisServer(binary, ["--replicaof", "127.0.0.1", str(master.port)]) as server:
        yield server


@pytest.fixture
async def probe(master: RedisServer, replica: RedisServer) -> AsyncIterator[RedisProbe]:
    """Looks at the master, whose replica is in step."""
    async with probing(master.url) as probe:
        await in_step(probe.client)
        yield probe


async def in_step(client: RedisClient) -> None:
    async def has_replica() -> bool:
        replicas: int = await client.execute("WAIT", 1, 100, wait=1)
        return replicas == 1

    await client.execute("SET", "told", "to the replica")
    await eventually(has_replica)
    await client.execute("DEL", "told")


async def lonely(client: RedisClient) -> None:
    """Wait until the master has noticed that its replica is gone."""

    async def alone() -> bool:
        return b"connected_slaves:0" in await client.execute("INFO", "replication")

    await eventually(alone)


async def opened(url: str, confirm: Confirm = SOON) -> RedisSortedSet:
    transport = RedisSortedSet(RedisSettings(url=url, confirm=confirm), [QUEUE], stop_timeout=1)
    await transport.start()
    return transport


async def test_a_settlement_that_the_replica_has_is_done(
    probe: RedisProbe, master: RedisServer
) -> None:
    transport = await opened(master.url, PATIENT)
    await submit(probe, "a")
    delivery = await claim_one(transport)
    assert await transport.settle(delivery, answer(delivery)) is Settlement.DONE
    await transport.ping()
    await transport.stop()


async def test_a_settlement_without_a_replica_stands_once_and_is_not_called_safe(
    probe: RedisProbe, master: RedisServer, replica: RedisServer
) -> None:
    transport = await opened(master.url)
    await submit(probe, "a")
    delivery = await claim_one(transport)
    await asyncio.to_thread(replica.kill)
    await lonely(probe.client)

    assert await transport.settle(delivery, answer(delivery)) is Settlement.UNCONFIRMED
    assert await transport.settle(delivery, answer(delivery)) is Settlement.GONE
    assert list(await probe.keyspace()) == ["result-list"]
    assert len(await probe.results("result-list")) == 1
    with pytest.raises(BrokerUnavailable, match="0 replicas in step"):
        await transport.ping()

    await asyncio.to_thread(replica.start)
    await in_step(probe.client)
    await transport.ping()
    await transport.stop()


async def test_a_result_that_the_new_master_lacks_is_posted_there(
    probe: RedisProbe, master: RedisServer, replica: RedisServer
) -> None:
    async with bad_network(master.port) as network:
        transport = await opened(f"redis://127.0.0.1:{network.port}/0", PATIENT)
        await submit(probe, "a")
        delivery = await claim_one(transport)
        await in_step(probe.client)
        new_master = open_client(replica.url)
        await new_master.execute("REPLICAOF", "NO", "ONE")
        await lonely(probe.client)

        settling = asyncio.create_task(transport.settle(delivery, answer(delivery)))
        await eventually(lambda: probe.results("result-list"))
        await asyncio.to_thread(master.kill)
        network._server_port = replica.port

        await eventually(lambda: new_master.execute("LLEN", "result-list"))
        assert not settling.done(), "it has no replica to confirm it"
        assert await new_master.execute("ZCARD", QUEUE) == 0
        settling.cancel()
        await transport.stop()
        await new_master.close()


async def test_a_submission_is_confirmed_by_the_replica(
    probe: RedisProbe, master: RedisServer, replica: RedisServer
) -> None:
    async with Producer(master.url, confirm=PATIENT) as producer:
        await producer.submit(Submission(payload={}, deadline="1h"))
    copy = open_client(replica.url)
    assert await copy.execute("ZCARD", QUEUE) == 1
    await copy.close()


async def test_a_submission_without_a_replica_is_queued_once_and_says_so(
    probe: RedisProbe, master: RedisServer, replica: RedisServer
) -> None:
    await asyncio.to_thread(replica.kill)
    await lonely(probe.client)
    async with Producer(master.url, confirm=SOON, retry_for=1) as producer:
        with pytest.raises(Unconfirmed) as refusal:
            await producer.submit(Submission(id="a", payload={}, deadline="1h"))
    assert [handle.id for handle in refusal.value.handles] == ["a"]
    assert len(await probe.waiting(QUEUE)) == 1


async def test_a_submission_is_repeated_until_the_replica_is_back(
    probe: RedisProbe, master: RedisServer, replica: RedisServer
) -> None:
    outages: list[BrokerUnavailable] = []
    await asyncio.to_thread(replica.kill)
    await lonely(probe.client)
    async with Producer(master.url, confirm=SOON, on_outage=outages.append) as producer:
        submitting = asyncio.create_task(producer.submit(Submission(payload={}, deadline="1h")))

        async def heard() -> bool:
            return bool(outages)

        await eventually(heard)
        await asyncio.to_thread(replica.start)
        await submitting
    assert len(await probe.waiting(QUEUE)) == 1


async def test_without_enough_replicas_a_refused_write_is_kept_and_done_once(
    probe: RedisProbe, master: RedisServer, replica: RedisServer
) -> None:
    transport = await opened(master.url, Confirm())
    await submit(probe, "a")
    await submit(probe, "b")
    (delivery,) = await transport.claim(QUEUE, 1, suspects=False)
    await probe.client.execute("CONFIG", "SET", "min-replicas-to-write", 1)
    await asyncio.to_thread(replica.kill)
    await lonely(probe.client)

    settling = asyncio.create_task(transport.settle(delivery, answer(delivery)))
    with pytest.raises(BrokerUnavailable, match="NOREPLICAS"):
        await transport.claim(QUEUE, 1, suspects=False)
    async with Producer(master.url, retry_for=0) as producer:
        with pytest.raises(BrokerUnavailable, match="NOREPLICAS"):
            await producer.submit(Submission(payload={}, deadline="1h"))
    assert await probe.results("result-list") == []

    await asyncio.to_thread(replica.start)
    assert await settling is Settlement.DONE
    assert len(await probe.results("result-list")) == 1
    assert len(await probe.waiting(QUEUE)) == 1
    await transport.stop()
