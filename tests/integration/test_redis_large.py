"""Messages and results of any size: none holds up the others, none takes memory without bound."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from async_processor.redis_io.address import COMMAND_SECONDS, command_seconds
from async_processor.redis_io.client import Argument
from async_processor.redis_io.keys import go_claim_keys
from async_processor.redis_io.queue_report import read_report
from async_processor.testing.messages import DEADLINE, message
from async_processor.testing.redis_probe import RedisProbe, redis_probe
from async_processor.testing.servers import server_binaries
from async_processor.testing.stage import QUEUE, RESULTS, answer, claim, submit
from async_processor.transport.base import Bury, Delivery, Post, Retry, Settlement
from async_processor.transport.redis_sorted_set import RedisSortedSet
from async_processor.wire import result
from async_processor.wire.envelope import score
from async_processor.wire.result import ErrorCode, Result

SERVERS = server_binaries()
MIB = 2**20
RETRY, DEAD = "retry-sortedset", "dead-letter-list"


@pytest.fixture(params=SERVERS)
async def probe(request: pytest.FixtureRequest) -> AsyncIterator[RedisProbe]:
    async with redis_probe(SERVERS[request.param]) as probe:
        yield probe


def large(delivery: Delivery, size: int = 3 * MIB) -> Post:
    filled = Result(id=delivery.request_id, status_code=200, payload="x" * size, attempts=2)
    return Post(result=filled, result_queue=RESULTS)


async def claimed(probe: RedisProbe, count: int) -> tuple[RedisSortedSet, Sequence[Delivery]]:
    replica = await probe.replica()
    for number in range(count):
        await submit(probe, f"r-{number}", seq=number + 1)
    return replica, await claim(replica, count)


async def set_limit(probe: RedisProbe, size: int) -> None:
    await probe.client.execute("CONFIG", "SET", "proto-max-bulk-len", size)


async def test_a_result_that_redis_never_takes_becomes_an_error_and_holds_up_no_other(
    probe: RedisProbe,
) -> None:
    replica, (first, *others) = await claimed(probe, 3)
    await set_limit(probe, MIB)
    stuck = asyncio.create_task(replica.settle(first, large(first)))
    await asyncio.sleep(0)

    for delivery in others:
        assert await replica.settle(delivery, answer(delivery)) is Settlement.DONE

    assert await stuck is Settlement.DONE
    found = result.decode((await probe.results(RESULTS))[-1])
    assert (found.id, found.error_code, found.attempts) == ("r-0", ErrorCode.INFERENCE_ERROR, 2)
    assert found.status_code is None
    assert "too large for the broker" in (found.error_message or "")
    assert set(await probe.keyspace()) == {RESULTS}


async def test_a_poisonous_request_keeps_its_letter_when_its_result_is_too_large(
    probe: RedisProbe,
) -> None:
    replica, (delivery,) = await claimed(probe, 1)
    await set_limit(probe, MIB)

    settled = await replica.settle(delivery, Bury(reason="poison", post=large(delivery)))

    assert settled is Settlement.DONE
    assert [letter.message for letter in await probe.dead_letters()] == [delivery.body.decode()]
    assert len(await probe.results(RESULTS)) == 1


async def test_a_retry_that_redis_does_not_take_stays_and_holds_up_no_other(
    probe: RedisProbe,
) -> None:
    replica, (first, second, third) = await claimed(probe, 3)
    await set_limit(probe, MIB)
    body = b'"' + b"x" * (2 * MIB) + b'"'
    stuck = asyncio.create_task(replica.settle(first, Retry(body=body, due_at=DEADLINE)))
    also_stuck = asyncio.create_task(replica.settle(second, large(second)))

    assert await replica.settle(third, answer(third)) is Settlement.DONE
    assert await also_stuck is Settlement.DONE
    assert not stuck.done()

    await set_limit(probe, 512 * MIB)
    assert await stuck is Settlement.DONE
    assert set(await probe.waiting("retry-sortedset")) == {body}


async def test_results_of_all_sizes_arrive_once_each(probe: RedisProbe) -> None:
    sizes = (1, 600_000, 20_000, 4 * MIB, 300_000, 300_000, 9 * MIB, 5)
    replica, deliveries = await claimed(probe, len(sizes))

    settlements = [
        replica.settle(delivery, large(delivery, size))
        for delivery, size in zip(deliveries, sizes, strict=True)
    ]
    assert set(await asyncio.gather(*settlements)) == {Settlement.DONE}

    lengths = [len(result.decode(body).payload) for body in await probe.results(RESULTS)]
    assert sorted(lengths) == sorted(sizes)
    assert set(await probe.keyspace()) == {RESULTS}


class Exchanges:
    """Notes how much goes to and fro in each exchange of a replica with its server."""

    def __init__(self, replica: RedisSortedSet, monkeypatch: pytest.MonkeyPatch) -> None:
        client = replica._link.client
        self._execute = client.execute
        self.largest = 0
        monkeypatch.setattr(client, "execute", self.execute)

    async def execute(self, *command: Argument, wait: float = 0) -> Any:
        found = await self._execute(*command, wait=wait)
        self.largest = max(self.largest, _size(command), _size(found))
        return found


def _size(parts: Any) -> int:
    if isinstance(parts, (list, tuple)):
        return sum(map(_size, parts))
    return len(parts) if isinstance(parts, (str, bytes)) else 0


async def test_large_retries_return_a_few_at_a_time(
    probe: RedisProbe, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = {
        message(
            f"r-{n}", seq=n, internal={"request_queue_name": QUEUE}, payload={"p": "x" * MIB}
        ): n
        for n in range(1, 13)
    }
    for body, due in bodies.items():
        await probe.client.execute("ZADD", "retry-sortedset", due, body)
    later = message("later", payload={"p": "x" * 6 * MIB})
    await probe.client.execute("ZADD", "retry-sortedset", DEADLINE, later)
    replica = await probe.replica()
    exchanges = Exchanges(replica, monkeypatch)

    assert await replica.promote_retries() == DEADLINE

    assert exchanges.largest < 6 * MIB
    assert await probe.waiting(QUEUE) == {body: score(DEADLINE, n) for body, n in bodies.items()}
    assert set(await probe.waiting("retry-sortedset")) == {later}


async def test_large_claims_of_the_go_implementation_return_a_few_at_a_time(
    probe: RedisProbe, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = go_claim_keys(QUEUE, clustered=False)
    bodies = [message(f"r-{n}", token="t", payload={"p": "x" * MIB}) for n in range(12)]
    for number, body in enumerate(bodies):
        await probe.client.execute("HSET", keys.claimed, str(number), body)
        await probe.client.execute("ZADD", keys.index, 1, str(number))
    replica = await probe.replica()
    exchanges = Exchanges(replica, monkeypatch)

    assert await replica.reclaim(QUEUE) == 12

    assert exchanges.largest < 6 * MIB
    assert set(await probe.waiting(QUEUE)) == set(bodies)
    assert set(await probe.keyspace()) == {QUEUE}


def test_the_time_for_a_command_grows_with_it() -> None:
    assert command_seconds(0) == COMMAND_SECONDS
    assert command_seconds(64 * MIB) == COMMAND_SECONDS + 16


async def sent_by(probe: RedisProbe) -> int:
    """Bytes that the server has sent to anybody."""
    told = (await probe.client.execute("INFO", "stats")).decode()
    return int(told.partition("total_net_output_bytes:")[2].split()[0])


async def test_reading_the_backlog_moves_no_large_message(probe: RedisProbe) -> None:
    await submit(probe, "large", payload={"prompt": "x" * 3 * MIB}, created=1)
    replica = await probe.replica()
    before = await sent_by(probe)
    backlog = await replica.backlog(QUEUE, ())
    assert (backlog.waiting, backlog.oldest_deadline) == (1, DEADLINE)
    assert await sent_by(probe) - before < MIB


async def test_looking_at_a_queue_moves_no_large_message(probe: RedisProbe) -> None:
    await submit(probe, "large", payload={"prompt": "x" * 3 * MIB})
    await probe.client.execute("ZADD", RETRY, DEADLINE + 1, "x" * 3 * MIB)
    before = await sent_by(probe)
    report = await read_report(probe.client, QUEUE, retry_queue=RETRY, dead_letter_queue=DEAD)
    assert (report.waiting, report.oldest_deadline) == (1, DEADLINE)
    assert (report.retries, report.next_retry) == (1, DEADLINE + 1)
    assert await sent_by(probe) - before < MIB
