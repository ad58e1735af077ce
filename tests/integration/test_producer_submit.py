"""Proves what a producer writes to a real broker: the contract's keys, each request once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest

from async_processor.errors import BrokerRefused, BrokerUnavailable
from async_processor.producer import (
    DeadlinePassed,
    Handle,
    InvalidSubmission,
    Producer,
    Submission,
    SyncProducer,
)
from async_processor.redis_io.client import Argument, Command, Line, RedisClient
from async_processor.redis_io.connect import open_client
from async_processor.redis_io.errors import AnswerLost
from async_processor.redis_io.outage import Outage
from async_processor.redis_io.producer_store import ProducerStore
from async_processor.testing.eventually import eventually
from async_processor.testing.servers import RedisServer

QUEUE = "request-sortedset"


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[RedisClient]:
    client = open_client(redis_url)
    yield client
    await client.close()


@pytest.fixture
async def producer(redis_url: str) -> AsyncIterator[Producer]:
    async with Producer(redis_url) as producer:
        yield producer


def _submission(**fields: Any) -> Submission:
    return Submission(**{"payload": {"prompt": "hi"}, "deadline": "1h", **fields})


async def _keys(redis: RedisClient) -> set[str]:
    return {key.decode() for key in await redis.execute("KEYS", "*")}


async def _no_receipts(redis: RedisClient) -> bool:
    return not any(":receipt:" in key for key in await _keys(redis))


async def test_exactly_the_keys_of_the_contract_are_written(
    producer: Producer, redis: RedisClient
) -> None:
    await redis.execute("SET", "request-cancel:r-1", "of an earlier one")
    handle = await producer.submit(_submission(id="r-1"))
    await eventually(lambda: _no_receipts(redis))
    sequence = f"request-seq:{QUEUE}:{handle.deadline}"
    assert await _keys(redis) == {QUEUE, "request-active:r-1", sequence}
    assert await redis.execute("GET", "request-active:r-1") == handle.request_token.encode()
    assert await redis.execute("EXPIRETIME", "request-active:r-1") == handle.deadline
    assert await redis.execute("GET", sequence) == b"1"
    assert await redis.execute("EXPIRETIME", sequence) == handle.deadline + 3600
    body, score = await redis.execute("ZRANGE", QUEUE, 0, -1, "WITHSCORES")
    assert float(score) == handle.deadline + 1 / 2097152
    message = json.loads(body)
    assert message["internal"] == {
        "request_token": handle.request_token,
        "request_queue_name": QUEUE,
        "result_queue_name": f"request-result:r-1:{handle.request_token}",
        "enqueue_seq": 1,
    }
    assert message["request_kind"] == "plain"
    assert message["data"]["payload"] == {"prompt": "hi"}


async def test_equal_deadlines_leave_in_the_order_in_which_they_came(
    producer: Producer, redis: RedisClient
) -> None:
    deadline = producer.now() + 600
    handles = await producer.submit_many(_submission(deadline=deadline) for _ in range(300))
    handles.append(await producer.submit(_submission(deadline=deadline)))
    bodies = await redis.execute("ZRANGE", QUEUE, 0, -1)
    assert [json.loads(body)["data"]["id"] for body in bodies] == [one.id for one in handles]
    assert [json.loads(body)["internal"]["enqueue_seq"] for body in bodies] == list(range(1, 302))


async def test_ten_thousand_are_submitted_in_chunks(producer: Producer, redis: RedisClient) -> None:
    async def endless() -> AsyncIterator[Submission]:
        for number in range(10_000):
            yield _submission(id=f"r-{number}")

    handles = [handle async for handle in producer.submit_each(endless())]
    assert len({handle.request_token for handle in handles}) == 10_000
    assert await redis.execute("ZCARD", QUEUE) == 10_000
    assert not any(handle.result_queue for handle in handles)


async def test_one_id_under_two_tokens_is_two_requests(
    producer: Producer, redis: RedisClient
) -> None:
    first = await producer.submit(_submission(id="same"))
    second = await producer.submit(_submission(id="same"))
    assert await redis.execute("ZCARD", QUEUE) == 2
    assert first.result_queue != second.result_queue
    assert await redis.execute("GET", "request-active:same") == second.request_token.encode()


async def test_a_stored_payload_outlives_its_deadline_by_ten_minutes(
    redis_url: str, redis: RedisClient
) -> None:
    async with Producer(redis_url, store_payload=True) as producer:
        handle = await producer.submit(_submission(id="big", payload=b'{"a": 1.50}'))
    key = f"request-payload:big:{handle.request_token}"
    assert await redis.execute("GET", key) == b'{"a": 1.50}'
    assert await redis.execute("EXPIRETIME", key) == handle.deadline + 600
    (body,) = await redis.execute("ZRANGE", QUEUE, 0, -1)
    assert json.loads(body)["internal"]["payload_ref"] == key


async def test_a_deadline_is_judged_by_the_brokers_clock(
    producer: Producer, redis: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds, _ = await redis.execute("TIME")
    monkeypatch.setattr("time.time", lambda: 5.0)
    with pytest.raises(DeadlinePassed):
        await producer.submit(_submission(deadline=int(seconds) - 1))
    assert await _keys(redis) == set()


async def test_many_are_submitted_all_or_none_where_one_is_invalid(
    producer: Producer, redis: RedisClient
) -> None:
    with pytest.raises(InvalidSubmission, match="endpoint"):
        await producer.submit_many([_submission(), _submission(endpoint="no path")])
    assert await _keys(redis) == set()


async def test_a_stream_is_submitted_up_to_the_invalid_one(
    producer: Producer, redis: RedisClient
) -> None:
    queued: list[Handle] = []

    async def submit() -> None:
        stream = [_submission(), _submission(endpoint="no path")]
        async for handle in producer.submit_each(stream):
            queued.append(handle)  # noqa: PERF401 - what came before the error is the point

    with pytest.raises(InvalidSubmission, match="endpoint"):
        await submit()
    assert len(queued) == 1
    assert await redis.execute("ZCARD", QUEUE) == 1


async def test_nothing_is_written_where_the_queue_is_something_else(
    producer: Producer, redis: RedisClient
) -> None:
    await redis.execute("SET", QUEUE, "a string")
    with pytest.raises(BrokerRefused, match="WRONGTYPE"):
        await producer.submit(_submission())
    assert await _keys(redis) == {QUEUE}


async def test_nothing_is_submitted_while_the_broker_is_at_its_maxmemory(
    redis_server: RedisServer,
) -> None:
    redis = open_client(redis_server.url)
    await redis.execute("CONFIG", "SET", "maxmemory", 1)
    async with Producer(redis_server.url, retry_for=0) as producer:
        with pytest.raises(BrokerUnavailable, match="maxmemory"):
            await producer.submit(_submission())
    assert await _keys(redis) == set()
    await redis.close()


class _Forgetful:
    """A client that loses the answer to the first submit, after `meanwhile` has happened."""

    def __init__(self, inner: RedisClient, meanwhile: Callable[[], Awaitable[Any]]) -> None:
        self._inner = inner
        self._meanwhile = meanwhile
        self.lost = 0
        self.clustered = False

    @property
    def outage(self) -> Outage:
        return self._inner.outage

    async def execute(self, *command: Argument, wait: float = 0) -> Any:
        answer = await self._inner.execute(*command, wait=wait)
        if str(command[0]).startswith("EVAL") and not self.lost:
            self.lost += 1
            await self._meanwhile()
            raise AnswerLost("the answer was lost")
        return answer

    async def pipeline(self, commands: Sequence[Command], wait: float = 0) -> list[Any]:
        return await self._inner.pipeline(commands, wait)

    async def line(self) -> Line:
        return await self._inner.line()

    async def close(self) -> None:
        await self._inner.close()


async def test_a_lost_answer_queues_the_request_once(
    redis: RedisClient, producer: Producer
) -> None:
    async def nothing() -> None: ...

    forgetful = _Forgetful(redis, nothing)
    producer._broker.store = ProducerStore(forgetful)
    await producer.submit_many([_submission(), _submission()])
    assert forgetful.lost == 1
    assert await redis.execute("ZCARD", QUEUE) == 2


async def test_a_lost_answer_does_not_queue_again_what_has_run_meanwhile(
    redis: RedisClient, producer: Producer
) -> None:
    async def run_and_settle() -> None:
        await redis.execute("DEL", QUEUE, "request-active:r-1")

    forgetful = _Forgetful(redis, run_and_settle)
    producer._broker.store = ProducerStore(forgetful)
    await producer.submit(_submission(id="r-1"))
    assert forgetful.lost == 1
    assert await redis.execute("EXISTS", QUEUE, "request-active:r-1") == 0


async def test_a_broker_that_is_away_is_waited_for(redis_server: RedisServer) -> None:
    async with Producer(redis_server.url) as producer:
        redis_server.kill()
        submitting = asyncio.ensure_future(producer.submit(_submission()))
        await asyncio.sleep(0)
        redis_server.start()
        handle = await submitting
        assert await producer.cancel(handle) == [True]


async def test_a_broker_that_stays_away_is_given_up(redis_server: RedisServer) -> None:
    async with Producer(redis_server.url, retry_for=0.2) as producer:
        redis_server.kill()
        with pytest.raises(BrokerUnavailable):
            await producer.submit(_submission())


async def test_cancelling_copies_the_active_token_and_says_where_it_had_no_effect(
    producer: Producer, redis: RedisClient
) -> None:
    first = await producer.submit(_submission(id="a"))
    second = await producer.submit(_submission(id="a"))
    assert await producer.cancel("a", first, second, "unknown") == [True, False, True, False]
    assert await redis.execute("GET", "request-cancel:a") == second.request_token.encode()
    assert 0 < await redis.execute("TTL", "request-cancel:a") <= 7 * 24 * 3600
    await redis.execute("DEL", "request-active:a")
    assert await producer.cancel("a", second) == [False, False]


async def test_a_message_without_a_token_cannot_be_cancelled(
    producer: Producer, redis: RedisClient
) -> None:
    await redis.execute("ZADD", QUEUE, 1, '{"id":"bare","deadline":1,"payload":{}}')
    assert await producer.cancel("bare") == [False]
    assert await redis.execute("EXISTS", "request-cancel:bare") == 0


def test_the_same_without_asyncio(redis_url: str) -> None:
    with SyncProducer(redis_url) as producer:
        handle = producer.submit(_submission(id="s"))
        assert len(producer.submit_many([_submission(), _submission()])) == 2
        assert producer.cancel(handle, "unknown") == [True, False]
        with pytest.raises(TimeoutError):
            producer.result(handle, timeout=0.05)
        with pytest.raises(DeadlinePassed):
            producer.submit(_submission(deadline=1.0))
