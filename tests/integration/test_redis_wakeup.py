"""A plain ZADD wakes whoever waits, in both modes; and waiting costs next to nothing."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from async_processor.testing.eventually import eventually
from async_processor.testing.proxy import bad_network
from async_processor.testing.redis_probe import RedisProbe, probing
from async_processor.testing.servers import RedisServer, server_binaries
from async_processor.testing.stage import QUEUE, claim_one, submit
from async_processor.transport.redis_sorted_set import RedisSortedSet
from async_processor.transport.redis_sorted_set import watching as redis_watching
from async_processor.transport.redis_sorted_set.watching import Watcher

SERVERS = server_binaries()
LONG = 60.0


@pytest.fixture(params=[f"{name}-{mode}" for name in SERVERS for mode in ("notice", "look")])
async def probe(request: pytest.FixtureRequest) -> AsyncIterator[RedisProbe]:
    name, mode = request.param.split("-")
    with RedisServer(SERVERS[name]) as server:
        async with probing(server.url) as admin:
            await admin.client.execute(
                "ACL", "SETUSER", "limited", "on", ">pw", "~*", "&*", "+@all", "-client|tracking"
            )
        user = "limited:pw@" if mode == "look" else ""
        replica_url = f"redis://{user}127.0.0.1:{server.port}/0"
        async with probing(server.url, replica_url=replica_url) as probe:
            yield probe


@pytest.fixture
def no_safety_net(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only notices and looks can wake anybody: a wake-up that is missed never comes."""
    monkeypatch.setattr(redis_watching, "_SAFETY_SECONDS", 10 * LONG)


async def watching(probe: RedisProbe) -> RedisSortedSet:
    """A replica that has found out how it can watch."""
    replica = await probe.replica()
    await submit(probe, "first")
    assert await replica.wait_for_work(QUEUE, LONG)
    await claim_one(replica)
    return replica


async def wait_begun(
    probe: RedisProbe, replica: RedisSortedSet, *queue_names: str
) -> list[asyncio.Task[bool]]:
    """Wait for work, and let the watcher look: what follows must come as a change."""
    before = await looks(probe)
    tasks = [asyncio.create_task(replica.wait_for_work(name, LONG)) for name in queue_names]
    await looked_again(probe, before + len(set(queue_names)))
    assert not any(task.done() for task in tasks)
    return tasks


async def looks(probe: RedisProbe) -> int:
    """How many queues were looked at."""
    stats: bytes = await probe.client.execute("INFO", "commandstats")
    found = re.search(rb"cmdstat_exists:calls=(\d+)", stats)
    return int(found[1]) if found else 0


async def looked_again(probe: RedisProbe, wanted: int) -> None:
    async def enough() -> bool:
        return await looks(probe) >= wanted

    await eventually(enough)


async def test_a_queue_that_holds_something_wakes_at_once(probe: RedisProbe) -> None:
    replica = await probe.replica()
    await submit(probe, "a")
    assert await replica.wait_for_work(QUEUE, LONG)
    assert await replica.wait_for_work(QUEUE, LONG), "until somebody has claimed it"


async def test_an_empty_queue_lets_the_time_pass(probe: RedisProbe) -> None:
    replica = await watching(probe)
    assert not await replica.wait_for_work(QUEUE, 0.05)


@pytest.mark.usefixtures("no_safety_net")
async def test_a_plain_zadd_wakes_an_idle_queue(probe: RedisProbe) -> None:
    replica = await watching(probe)
    for number in range(5):
        (waiting,) = await wait_begun(probe, replica, QUEUE)
        await submit(probe, f"r-{number}")
        assert await waiting
        await claim_one(replica)


@pytest.mark.parametrize("binary", SERVERS.values(), ids=SERVERS)
@pytest.mark.usefixtures("no_safety_net")
async def test_a_notice_is_believed_without_a_look(binary: str) -> None:
    """A round trip less on the way of a request that finds the queue empty."""
    with RedisServer(binary) as server:
        async with probing(server.url) as probe:
            replica = await watching(probe)
            (waiting,) = await wait_begun(probe, replica, QUEUE)
            before = await looks(probe)
            await submit(probe, "a")
            assert await waiting
            assert await looks(probe) == before
            assert await replica.wait_for_work(QUEUE, LONG), "asked again, it looks"
            assert await looks(probe) == before + 1


async def test_only_the_queue_that_was_filled_wakes(probe: RedisProbe) -> None:
    replica = await watching(probe)
    waiting, other, twin = await wait_begun(probe, replica, QUEUE, "other", QUEUE)
    await submit(probe, "a")
    assert await waiting
    assert await twin
    assert not other.done()
    await submit(probe, "b", queue="other")
    assert await other


@pytest.mark.usefixtures("no_safety_net")
async def test_no_wake_up_is_lost_between_looking_and_waiting(probe: RedisProbe) -> None:
    """Producer and consumer run free; after one missed wake-up both would wait for ever."""
    replica = await watching(probe)

    async def produce() -> None:
        for number in range(200):
            await submit(probe, f"r-{number}")
            await eventually(emptied, within=LONG)

    async def emptied() -> bool:
        return not await probe.waiting(QUEUE)

    producing = asyncio.create_task(produce())
    claimed = 0
    while claimed < 200:
        assert await replica.wait_for_work(QUEUE, LONG)
        claimed += len(await replica.claim(QUEUE, 10, suspects=False))
    await producing


async def test_ten_idle_queues_cost_next_to_nothing(probe: RedisProbe) -> None:
    replica = await watching(probe)
    waiting = await wait_begun(probe, replica, *(f"queue-{number}" for number in range(10)))
    before, begin = await network_reads(probe), time.monotonic()
    await asyncio.sleep(1.5)
    # By notice: a look a second and a PING. By looking: every 12 to 20 ms.
    reads = await network_reads(probe) - before
    assert reads / (time.monotonic() - begin) < 100
    for task in waiting:
        task.cancel()


async def network_reads(probe: RedisProbe) -> int:
    """Calls of EXISTS count a pipeline of ten as ten; what the network carries is what costs."""
    stats: Any = await probe.client.execute("INFO", "stats")
    fields = dict(line.split(b":") for line in stats.splitlines() if b":" in line)
    return int(fields[b"total_reads_processed"])


async def test_a_busy_queue_does_not_put_off_the_look_at_a_quiet_one(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where notices are lost, as on a line that is half open, the safety net is all there is."""
    async with probing(redis_server.url) as probe:
        replica = await watching(probe)
        (waiting,) = await wait_begun(probe, replica, QUEUE)
        monkeypatch.setattr(Watcher, "_changed", lambda _, __: None)
        await submit(probe, "b", queue="busy")

        async def look_all_the_time() -> None:
            while True:
                assert await replica.wait_for_work("busy", LONG)

        looking = asyncio.create_task(look_all_the_time())
        await submit(probe, "a")
        assert await waiting
        looking.cancel()


@pytest.mark.usefixtures("no_safety_net")
async def test_what_others_publish_on_the_channel_of_notices_does_no_harm(
    redis_server: RedisServer,
) -> None:
    async with probing(redis_server.url) as probe:
        replica = await watching(probe)
        (waiting,) = await wait_begun(probe, replica, QUEUE)
        assert await probe.client.execute("PUBLISH", "__redis__:invalidate", QUEUE) == 1
        await submit(probe, "a")
        assert await waiting
        assert await replica.wait_for_work(QUEUE, LONG)


@pytest.mark.parametrize("binary", SERVERS.values(), ids=SERVERS)
@pytest.mark.usefixtures("no_safety_net")
async def test_watching_survives_lost_connections(binary: str) -> None:
    with RedisServer(binary) as server:
        async with bad_network(server.port) as network:
            replica_url = f"redis://127.0.0.1:{network.port}/0"
            async with probing(server.url, replica_url=replica_url) as probe:
                replica = await watching(probe)
                (waiting,) = await wait_begun(probe, replica, QUEUE)
                before = await looks(probe)
                network.cut()
                await looked_again(probe, before + 1)
                await submit(probe, "a")
                assert await waiting

                (waiting,) = await wait_begun(probe, replica, "other")
                network.down()
                await submit(probe, "b", queue="other")
                assert not waiting.done()
                network.up()
                assert await waiting


@pytest.mark.parametrize("binary", SERVERS.values(), ids=SERVERS)
@pytest.mark.usefixtures("no_safety_net")
async def test_flushall_does_not_make_the_watcher_deaf(binary: str) -> None:
    with RedisServer(binary) as server:
        async with probing(server.url) as probe:
            replica = await watching(probe)
            (waiting,) = await wait_begun(probe, replica, QUEUE)
            before = await looks(probe)
            server.flush()
            await looked_again(probe, before + 1)
            await submit(probe, "a")
            assert await waiting


async def test_a_queue_of_another_type_wakes_and_spoils_no_other(probe: RedisProbe) -> None:
    replica = await watching(probe)
    strange, waiting = await wait_begun(probe, replica, "strange", QUEUE)
    await probe.client.execute("SET", "strange", "not a set")
    assert await strange
    await submit(probe, "a")
    assert await waiting
    await eventually(lambda: replica.wait_for_work("strange", LONG))
