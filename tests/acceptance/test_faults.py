"""Three daemons, two thousand requests, and the faults of an ordinary day: nothing lost or doubled.

The verdict is arithmetic: as many results as requests, no id twice, none missing.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections import Counter
from collections.abc import Callable

from async_processor.producer import Producer, Submission
from async_processor.sim.pool import SimulatedPool
from async_processor.testing.daemons import SHORT_LEASES, DaemonProcess
from async_processor.testing.eventually import eventually, until
from async_processor.testing.result_reading import reading
from async_processor.testing.servers import RedisServer

Fleet = Callable[..., DaemonProcess]

REQUESTS = 2000
FAULT_SECONDS = 10
LATENCY = 0.4


def submissions(count: int) -> list[Submission]:
    return [
        Submission(
            id=f"r-{number}",
            payload={"prompt": "hi", "max_tokens": 4, "user": f"r-{number}"},
            deadline="10m",
        )
        for number in range(count)
    ]


async def all_results(seen: Counter[str], count: int, *, within: float = 60) -> None:
    """Wait for every result, and a little longer for one too many."""
    await until(lambda: len(seen) >= count, within=within)
    await asyncio.sleep(1)
    assert set(seen) == {f"r-{number}" for number in range(count)}
    assert not {each: times for each, times in seen.items() if times > 1}


async def test_a_daemon_killed_every_second_loses_and_doubles_nothing(
    fleet: Fleet, producer: Producer
) -> None:
    async with SimulatedPool(latency=LATENCY) as pool:
        daemons = [fleet(pool.url, workers=32, transport=SHORT_LEASES) for _ in range(3)]
        await asyncio.gather(*(daemon.start() for daemon in daemons))
        async with reading(producer) as seen:
            await producer.submit_many(submissions(REQUESTS))
            for daemon in itertools.islice(itertools.cycle(daemons), FAULT_SECONDS):
                await asyncio.sleep(1)
                await daemon.kill()
                await daemon.spawn()
            await all_results(seen, REQUESTS)
        assert pool.ledger.calls.total() <= REQUESTS + FAULT_SECONDS * 32


async def test_a_daemon_terminated_every_second_executes_nothing_twice(
    fleet: Fleet, producer: Producer
) -> None:
    async with SimulatedPool(latency=LATENCY) as pool:
        daemons = [fleet(pool.url, workers=32) for _ in range(3)]
        await asyncio.gather(*(daemon.start() for daemon in daemons))
        async with reading(producer) as seen:
            await producer.submit_many(submissions(REQUESTS))
            for daemon in itertools.islice(itertools.cycle(daemons), FAULT_SECONDS):
                await asyncio.sleep(1)
                await eventually(daemon.ready)  # before that a signal ends it as any process
                assert await daemon.terminate() == 0
                await daemon.spawn()
            await all_results(seen, REQUESTS)
        assert not pool.ledger.repeated()


async def test_redis_restarted_in_the_middle_loses_and_doubles_nothing(
    fleet: Fleet, producer: Producer, redis_server: RedisServer
) -> None:
    async with SimulatedPool(latency=LATENCY) as pool:
        daemons = [fleet(pool.url, workers=32, transport=SHORT_LEASES) for _ in range(2)]
        await asyncio.gather(*(daemon.start() for daemon in daemons))
        async with reading(producer) as seen:
            await producer.submit_many(submissions(REQUESTS // 2))
            await asyncio.sleep(1)
            await asyncio.to_thread(redis_server.kill)
            await asyncio.sleep(1.5)
            await asyncio.to_thread(redis_server.start)
            await all_results(seen, REQUESTS // 2)
        for daemon in daemons:
            assert daemon.running


async def test_a_stopped_process_that_wakes_up_late_writes_nothing(
    fleet: Fleet, producer: Producer
) -> None:
    async with SimulatedPool(latency=1.0) as pool:
        zombie, other = (fleet(pool.url, workers=8, transport=SHORT_LEASES) for _ in range(2))
        await zombie.start()
        async with reading(producer) as seen:
            await producer.submit_many(submissions(8))
            await until(lambda: pool.ledger.total >= 8)
            zombie.send(signal.SIGSTOP)
            await other.start()
            await until(lambda: len(seen) >= 8)
            zombie.send(signal.SIGCONT)
            await all_results(seen, 8)
        assert zombie.running
