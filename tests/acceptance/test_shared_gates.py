"""A gate that replicas share, with real processes: together they never run more than it allows,
whoever joins, stops or dies, and what one leaves the others take over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from async_processor.producer import Producer, Submission
from async_processor.redis_io.connect import open_client
from async_processor.sim.pool import SimulatedPool
from async_processor.testing.daemons import SHORT_LEASES, DaemonProcess
from async_processor.testing.eventually import eventually, until
from async_processor.testing.servers import RedisServer

Fleet = Callable[..., DaemonProcess]

LIMIT = 4
ROLL = "{request-sortedset}:replicas"


class Eyes:
    """Counts the calls that run at once."""

    def __init__(self, pool: SimulatedPool) -> None:
        self._called, self._answered = pool.ledger.called, pool.ledger.answered
        self.running = 0
        self.most = 0
        pool.ledger.called = self.called  # type: ignore[method-assign]
        pool.ledger.answered = self.answered  # type: ignore[method-assign]

    def called(self, request_id: str) -> None:
        self._called(request_id)
        self.running += 1
        self.most = max(self.most, self.running)

    def answered(self, request_id: str) -> None:
        self.running -= 1
        self._answered(request_id)


async def running(daemon: DaemonProcess, count: int) -> None:
    async def as_many() -> bool:
        (pool,) = (await daemon.status())["pools"]
        return bool(pool["inflight"] == count)

    await eventually(as_many)


async def test_replicas_divide_a_limit_and_take_over_what_others_leave(
    fleet: Fleet, producer: Producer, redis_server: RedisServer
) -> None:
    gate = {"type": "local-max-concurrency", "limit": LIMIT, "shared": True}
    async with SimulatedPool(latency=0.5) as pool:
        eyes = Eyes(pool)
        first, second, third = (
            fleet(pool.url, workers=16, transport=SHORT_LEASES, queue={"gate": gate})
            for _ in range(3)
        )
        await producer.submit_many(
            [Submission(id=f"r-{n}", payload={"prompt": "hi"}, deadline="10m") for n in range(3000)]
        )
        await first.start()
        await running(first, LIMIT)
        await second.start()
        await running(second, LIMIT // 2)
        await running(first, LIMIT // 2)
        await third.start()
        await running(third, 1)
        assert eyes.most == LIMIT
        await second.terminate()
        await running(first, LIMIT // 2)
        await running(third, LIMIT // 2)
        await first.kill()
        await running(third, LIMIT)  # when the lease of the dead one has ended
        assert eyes.most <= LIMIT + LIMIT // 2  # what the dead one had sent runs on in the pool
        await until(lambda: eyes.running == LIMIT)
        await third.terminate()
    client = open_client(redis_server.url)
    assert not await client.execute("EXISTS", ROLL)
    await client.close()


async def test_a_gate_of_its_own_for_each_replica_is_the_default(
    fleet: Fleet, producer: Producer, redis_server: RedisServer
) -> None:
    gate = {"type": "local-max-concurrency", "limit": 2}
    async with SimulatedPool(latency=0.5) as pool:
        eyes = Eyes(pool)
        daemons = [fleet(pool.url, workers=16, queue={"gate": gate}) for _ in range(2)]
        await asyncio.gather(*(daemon.start() for daemon in daemons))
        await producer.submit_many(
            [Submission(id=f"r-{n}", payload={"prompt": "hi"}, deadline="10m") for n in range(100)]
        )
        await until(lambda: eyes.running == 4)
        client = open_client(redis_server.url)
        assert not await client.execute("EXISTS", ROLL)  # and it costs nothing
        await client.close()
