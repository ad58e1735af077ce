"""Proves that no result is lost with its reader, and that none is read twice without a death."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

import pytest

from async_processor.errors import BrokerRefused
from async_processor.producer import (
    NoMailbox,
    Producer,
    Submission,
    SyncProducer,
    UnreadableResult,
)
from async_processor.redis_io.client import RedisClient
from async_processor.redis_io.connect import open_client
from async_processor.redis_io.pooled import PooledLine
from async_processor.testing.eventually import eventually
from async_processor.testing.servers import RedisServer, free_port
from async_processor.wire.result import Result, encode

RESULTS = "result-list"
REQUEST = Submission(payload={}, deadline="1h")


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[RedisClient]:
    client = open_client(redis_url)
    yield client
    await client.close()


@pytest.fixture
async def producer(redis_url: str) -> AsyncIterator[Producer]:
    async with Producer(redis_url) as producer:
        yield producer


async def _post(redis: RedisClient, *ids: str, queue: str = RESULTS) -> None:
    for request_id in ids:
        body = encode(Result(id=request_id, payload="{}", status_code=200))
        await redis.execute("LPUSH", queue, body)


async def _fault(*_: object) -> None:
    raise RuntimeError("unforeseen")


async def _left(redis: RedisClient) -> set[str]:
    keys = {key.decode() for key in await redis.execute("KEYS", "*")}
    return {key for key in keys if "result" in key}


async def test_results_come_in_order_and_leave_nothing_behind(
    producer: Producer, redis: RedisClient
) -> None:
    await _post(redis, *map(str, range(250)))
    read = []
    async with producer.results(follow=False) as reader:
        async for taken in reader:
            read.append(taken.result.id)
            await taken.ack()
    assert read == [str(number) for number in range(250)]
    assert await _left(redis) == set()


async def test_what_is_not_acknowledged_is_read_again_in_its_order(
    producer: Producer, redis: RedisClient
) -> None:
    await _post(redis, "a", "b", "c")
    async with producer.results() as reader:
        first, second = await anext(reader), await anext(reader)
        await second.ack()
    assert first.result.id == "a"
    async with producer.results(follow=False) as reader:
        again = [taken async for taken in reader]
        assert [taken.result.id for taken in again] == ["a", "c"]
        await reader.ack(again)
    assert await _left(redis) == set()


async def test_an_idle_reader_wakes_and_cancelling_its_wait_loses_nothing(
    producer: Producer, redis: RedisClient
) -> None:
    async with producer.results() as reader:
        for round_ in range(20):
            waiting = asyncio.ensure_future(anext(reader))
            for _ in range(round_):
                await asyncio.sleep(0)
            posting = asyncio.ensure_future(_post(redis, str(round_)))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            await posting
            if waiting.cancelled():
                taken = await anext(reader)
            else:
                taken = waiting.result()
            assert taken.result.id == str(round_)
            await taken.ack()
    assert await _left(redis) == set()


async def test_a_lost_answer_to_taking_loses_nothing(
    producer: Producer, redis: RedisClient
) -> None:
    await _post(redis, "a", "b")
    async with producer.results(follow=False) as reader:
        await reader._store.take(reader._name, 30, 0, limit=100, max_bytes=2**20)
        ids = [taken.result.id async for taken in reader]
    assert ids == ["a", "b"]


async def test_two_readers_share_the_results(producer: Producer, redis_url: str) -> None:
    async with Producer(redis_url) as other, producer.results() as mine, other.results() as theirs:
        redis = open_client(redis_url)
        read: list[str] = []

        async def consume(reader: object) -> None:
            async for taken in reader:  # type: ignore[attr-defined]
                read.append(taken.result.id)
                await taken.ack()

        consumers = [asyncio.ensure_future(consume(reader)) for reader in (mine, theirs)]
        for number in range(300):
            await _post(redis, str(number))

        async def all_read() -> bool:
            return len(read) == 300

        await eventually(all_read)
        for consumer in consumers:
            consumer.cancel()
        await asyncio.wait(consumers)
        assert sorted(map(int, read)) == list(range(300))
        await redis.close()


_READER = """
import asyncio, sys
from async_processor.producer import Producer

async def main():
    async with Producer(sys.argv[1], reader_lease=0.5) as producer:
        async for taken in producer.results():
            if taken.result.id == "acked":
                await taken.ack()
            print(taken.result.id, flush=True)

asyncio.run(main())
"""


async def test_what_a_killed_reader_took_is_read_again(redis_url: str, redis: RedisClient) -> None:
    await _post(redis, "acked", "a", "b")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _READER, redis_url, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    seen = [await process.stdout.readline() for _ in range(3)]
    process.kill()
    await process.wait()
    assert seen == [b"acked\n", b"a\n", b"b\n"]
    assert await redis.execute("LLEN", RESULTS) == 0
    async with Producer(redis_url, reader_lease=1.0) as producer, producer.results() as reader:
        async with asyncio.timeout(60):
            again = [await anext(reader), await anext(reader)]
        assert [taken.result.id for taken in again] == ["a", "b"]
        await reader.ack(again)
    assert await _left(redis) == set()


async def test_a_living_reader_keeps_what_it_took_for_longer_than_its_lease(
    redis_url: str, redis: RedisClient
) -> None:
    await _post(redis, "a")
    async with (
        Producer(redis_url, reader_lease=2) as slow,
        slow.results() as holding,
        Producer(redis_url, reader_lease=0.1) as eager,
        eager.results() as looking,
    ):
        taken = await anext(holding)
        upcoming = asyncio.ensure_future(anext(looking))
        done, _ = await asyncio.wait([upcoming], timeout=3)
        assert not done
        await taken.ack()
        await _post(redis, "b")
        assert (await upcoming).result.id == "b"


async def test_what_is_no_result_is_handed_on_as_it_came(
    producer: Producer, redis: RedisClient
) -> None:
    await redis.execute("LPUSH", RESULTS, b"\xff garbage")
    async with producer.results(follow=False) as reader:
        taken = await anext(reader)
        assert taken.body == b"\xff garbage"
        with pytest.raises(UnreadableResult):
            _ = taken.result
        await taken.ack()
    assert await _left(redis) == set()


async def test_a_queue_that_is_no_list_is_refused(producer: Producer, redis: RedisClient) -> None:
    await redis.execute("SET", RESULTS, "a string")
    reader = producer.results()
    with pytest.raises(BrokerRefused, match="WRONGTYPE"):
        await anext(reader)
    await redis.execute("DEL", RESULTS)


async def test_a_mailbox_is_waited_for_and_gone_afterwards(
    producer: Producer, redis: RedisClient
) -> None:
    handle = await producer.submit(REQUEST)
    waiting = asyncio.ensure_future(producer.result(handle, timeout=60))
    await asyncio.sleep(0)
    await _post(redis, handle.id, queue=handle.result_queue)
    assert (await waiting).id == handle.id
    assert await _left(redis) == set()


async def test_a_mailbox_can_be_read_again_until_it_is_acknowledged(
    producer: Producer, redis: RedisClient
) -> None:
    handle = await producer.submit(REQUEST)
    await _post(redis, handle.id, queue=handle.result_queue)
    first = await producer.take(handle, timeout=60)
    second = await producer.take(handle, timeout=60)
    assert first.result == second.result
    await second.ack()
    with pytest.raises(TimeoutError):
        await producer.take(handle, timeout=0.05)


async def test_many_mailboxes_are_waited_for_at_once(
    producer: Producer, redis: RedisClient
) -> None:
    handles = await producer.submit_many([REQUEST] * 500, mailbox=True)
    seen: set[str] = set()

    async def collect() -> None:
        async for taken in producer.take_each(handles):
            seen.add(taken.result.id)
            await taken.ack()

    collecting = asyncio.ensure_future(collect())
    for handle in handles:
        await _post(redis, handle.id, queue=handle.result_queue)
    await asyncio.wait_for(collecting, 60)
    assert seen == {handle.id for handle in handles}
    clients = await redis.execute("INFO", "clients")
    connected = int(clients.split(b"connected_clients:")[1].split()[0])
    assert connected < 60
    assert await _left(redis) == set()


async def test_a_request_without_a_mailbox_has_nothing_to_wait_for(producer: Producer) -> None:
    handle = await producer.submit(REQUEST, mailbox=False)
    with pytest.raises(NoMailbox):
        await producer.result(handle)


async def test_waiting_survives_a_restart_of_the_broker() -> None:
    with RedisServer(args=["--appendonly", "yes"]) as server:
        async with Producer(server.url) as producer, producer.results() as reader:
            handle = await producer.submit(REQUEST)
            mailbox = asyncio.ensure_future(producer.result(handle))
            shared = asyncio.ensure_future(anext(reader))
            await asyncio.sleep(0)
            server.stop()
            server.start()
            redis = open_client(server.url)
            await _post(redis, handle.id, queue=handle.result_queue)
            await _post(redis, "shared")
            async with asyncio.timeout(60):
                assert (await mailbox).id == handle.id
                assert (await shared).result.id == "shared"
            await redis.close()


async def test_where_tracking_is_forbidden_lists_are_looked_at() -> None:
    with RedisServer() as server:
        admin = open_client(server.url)
        await admin.execute("ACL", "SETUSER", "default", "-client|tracking")
        async with Producer(server.url) as producer:
            handle = await producer.submit(REQUEST)
            waiting = asyncio.ensure_future(producer.result(handle, timeout=60))
            await asyncio.sleep(0)
            await _post(admin, handle.id, queue=handle.result_queue)
            assert (await waiting).id == handle.id
        await admin.close()


def test_results_without_asyncio(redis_url: str) -> None:
    async def post() -> None:
        redis = open_client(redis_url)
        await _post(redis, "a", "b")
        await redis.close()

    asyncio.run(post())
    with SyncProducer(redis_url) as producer:
        ids = []
        for taken in producer.results(follow=False):
            ids.append(taken.result.id)
            taken.ack()
        assert ids == ["a", "b"]
        assert list(producer.results(follow=False)) == []


async def test_the_same_on_a_cluster() -> None:
    bus = str(free_port())
    with RedisServer(args=["--cluster-enabled", "yes", "--cluster-port", bus]) as server:
        redis = open_client(server.url)
        await redis.execute("CLUSTER", "ADDSLOTSRANGE", 0, 16383)

        async def whole() -> bool:
            return b"cluster_state:ok" in await redis.execute("CLUSTER", "INFO")

        await eventually(whole)
        async with Producer(server.url, store_payload=True) as producer:
            handles = await producer.submit_many([REQUEST] * 3, mailbox=True)
            assert await producer.cancel(handles[0], "unknown") == [True, False]
            waiting = asyncio.ensure_future(producer.result(handles[1], timeout=60))
            await _post(redis, handles[1].id, queue=handles[1].result_queue)
            assert (await waiting).id == handles[1].id
            await _post(redis, "shared")
            async with producer.results(follow=False) as reader:
                taken = [one async for one in reader]
                await reader.ack(taken)
        scores = (await redis.execute("ZRANGE", "request-sortedset", 0, -1, "WITHSCORES"))[1::2]
        assert [float(score) % 1 * 2097152 for score in scores] == [1, 2, 3]
        assert await _left(redis) == set()
        await redis.close()


async def test_results_can_be_read_while_the_broker_is_at_its_maxmemory(
    redis_server: RedisServer,
) -> None:
    redis = open_client(redis_server.url)
    await _post(redis, "a", "b", "c")
    await redis.execute("CONFIG", "SET", "maxmemory", 1)
    async with Producer(redis_server.url) as producer:
        async with producer.results() as reader:
            assert (await anext(reader)).result.id == "a"
        async with producer.results(follow=False) as reader:
            taken = [one async for one in reader]
            await reader.ack(taken)
    assert [one.result.id for one in taken] == ["a", "b", "c"]
    assert await _left(redis) == set()
    await redis.close()


async def test_whoever_waits_hears_of_a_fault_that_ends_the_watch(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = await producer.submit(REQUEST)
    monkeypatch.setattr(PooledLine, "ask", _fault)
    with pytest.raises(RuntimeError, match="unforeseen"):
        await producer.result(handle)
