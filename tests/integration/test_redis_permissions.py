"""A user with few permissions: what may not be used is left out, and all else goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from async_processor.redis_io.connect import open_client
from async_processor.redis_io.keys import queue_keys
from async_processor.redis_io.queue_report import read_report
from async_processor.testing.messages import DEADLINE, message
from async_processor.testing.redis_probe import RedisProbe, probing
from async_processor.testing.servers import RedisServer, server_binaries
from async_processor.testing.stage import QUEUE, answer, claim_one, submit
from async_processor.transport.base import Delivery, Outcome, Release, Retry, Settlement
from async_processor.transport.redis_sorted_set import RedisSortedSet
from async_processor.wire import dead_letter, result

SERVERS = server_binaries()
KEYS = queue_keys(QUEUE)
ALL = {
    *("request-sortedset*", "{request-sortedset}:*", "request-active:*", "request-cancel:*"),
    *("request-payload:*", "retry-sortedset", "{retry-sortedset}:*"),
    *("result-list", "dead-letter-list"),
}


@pytest.fixture(params=SERVERS)
async def server(request: pytest.FixtureRequest) -> AsyncIterator[RedisServer]:
    with RedisServer(SERVERS[request.param]) as server:
        yield server


@asynccontextmanager
async def limited(server: RedisServer, *missing: str) -> AsyncIterator[RedisProbe]:
    """A probe whose replicas may use all that a processor needs, less what is missing."""
    keys = [f"~{pattern}" for pattern in sorted(ALL - set(missing))]
    async with probing(server.url) as admin:
        await admin.client.execute(
            *("ACL", "SETUSER", "limited", "reset", "on", ">pw", "&*", "+@all"), *keys
        )
    url = f"redis://limited:pw@127.0.0.1:{server.port}/0"
    async with probing(server.url, replica_url=url) as probe:
        yield probe


async def settled(
    replica: RedisSortedSet,
    *outcomes: tuple[Delivery, Outcome],
    settlement: Settlement = Settlement.DONE,
) -> None:
    """All of them alike, and soon."""
    async with asyncio.timeout(60):
        answers = await asyncio.gather(*(replica.settle(*each) for each in outcomes))
    assert set(answers) == {settlement}


async def test_a_forbidden_result_queue_stops_no_other_settlement(server: RedisServer) -> None:
    async with limited(server) as probe:
        for number in range(8):
            await submit(probe, f"r-{number}", token="t", seq=number + 1)
            await probe.set_key(f"request-active:r-{number}", b"t")
        replica = await probe.replica()
        evil, retry, release, *good = await replica.claim(QUEUE, 8, suspects=False)

        await settled(
            replica,
            (evil, answer(evil, "elsewhere")),
            (retry, Retry(body=b"{}", due_at=1.0)),
            (release, Release()),
            *((each, answer(each)) for each in good),
        )

        found = {result.decode(item).id for item in await probe.results("result-list")}
        assert found == {each.request_id for each in (evil, *good)}
        assert set(await probe.keyspace()) == {
            *(QUEUE, "retry-sortedset", "result-list"),
            *("request-active:r-1", "request-active:r-2"),
        }


async def test_without_any_result_queue_the_result_lies_in_the_dead_letter(
    server: RedisServer,
) -> None:
    async with limited(server, "result-list") as probe:
        await submit(probe, "a")
        replica = await probe.replica()
        delivery = await claim_one(replica)
        await settled(replica, (delivery, answer(delivery)), settlement=Settlement.BURIED)
        (letter,) = await probe.dead_letters()
        assert "NOPERM" in letter.reason
        assert letter.result == result.encode(answer(delivery).result).decode()


async def test_without_dead_letters_too_it_is_stranded(server: RedisServer) -> None:
    async with limited(server, "result-list", "dead-letter-list") as probe:
        await submit(probe, "a")
        replica = await probe.replica()
        delivery = await claim_one(replica)
        await settled(replica, (delivery, answer(delivery)), settlement=Settlement.BURIED)
        (letter,) = await probe.results(KEYS.stranded)
        assert dead_letter.decode(letter).result
        assert set(await probe.keyspace()) == {KEYS.stranded}


async def test_without_a_retry_set_a_retry_is_due_at_once(server: RedisServer) -> None:
    async with limited(server, "retry-sortedset") as probe:
        await submit(probe, "a")
        replica = await probe.replica()
        await settled(replica, (await claim_one(replica), Retry(body=b"{}", due_at=9e9)))
        assert set(await probe.waiting(QUEUE)) == {b"{}"}


async def test_forbidden_request_keys_are_left_and_the_results_posted(server: RedisServer) -> None:
    async with limited(server, "request-active:*", "request-payload:*") as probe:
        for number in range(6):
            ref = f"request-payload:r-{number}:t"
            await submit(probe, f"r-{number}", token="t", internal={"payload_ref": ref})
            for key in (f"request-active:r-{number}", f"request-cancel:r-{number}", ref):
                await probe.set_key(key, b"t")
        replica = await probe.replica()
        first, second, *others = await replica.claim(QUEUE, 6, suspects=False)

        await settled(replica, (first, answer(first)), (second, answer(second)))
        asked = await permissions_asked(probe)
        await settled(replica, *((each, answer(each)) for each in others))

        assert await permissions_asked(probe) == asked, "what is forbidden is remembered"
        assert len(await probe.results("result-list")) == 6
        assert not any(key.startswith("request-cancel:") for key in await probe.keyspace())


async def permissions_asked(probe: RedisProbe) -> bytes:
    """The statistics of EVAL, by which permissions are asked for; known scripts are EVALSHA."""
    stats: bytes = await probe.client.execute("INFO", "commandstats")
    (line,) = (each for each in stats.splitlines() if each.startswith(b"cmdstat_eval:"))
    return line


async def test_a_retry_for_a_forbidden_queue_holds_up_no_other(server: RedisServer) -> None:
    async with limited(server) as probe:
        evil = message("evil", internal={"request_queue_name": "elsewhere"})
        good = message("good", internal={"request_queue_name": QUEUE})
        for body in (evil, good):
            await probe.client.execute("ZADD", "retry-sortedset", 1, body)
        replica = await probe.replica()
        assert await replica.promote_retries() is None
        assert set(await probe.waiting(QUEUE)) == {evil, good}


async def test_a_denial_of_everything_is_waited_out(server: RedisServer) -> None:
    async with limited(server) as probe:
        await submit(probe, "a")
        replica = await probe.replica()
        delivery = await claim_one(replica)
        async with limited(server, "{request-sortedset}:*"):
            settling = asyncio.create_task(replica.settle(delivery, answer(delivery)))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(settling), 0.5)
        async with limited(server):
            assert await asyncio.wait_for(settling, 60) is Settlement.DONE


async def test_a_look_needs_no_key_that_is_of_no_use_to_it(server: RedisServer) -> None:
    async with limited(server, "{retry-sortedset}:*") as probe:
        await probe.client.execute("ZADD", "retry-sortedset", DEADLINE, message("a"))
        reader = open_client(f"redis://limited:pw@127.0.0.1:{server.port}/0")
        report = await read_report(
            reader, QUEUE, retry_queue="retry-sortedset", dead_letter_queue="dead-letter-list"
        )
        await reader.close()
        assert (report.retries, report.next_retry) == (1, DEADLINE)
