"""Tenants and their quotas, with real processes: limits hold over replicas, kills and time, and no
tenant's backlog delays another's requests or is forgotten."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from async_processor.producer import Producer, Submission
from async_processor.redis_io.connect import open_client
from async_processor.sim.pool import SimulatedPool
from async_processor.testing.daemons import DaemonProcess
from async_processor.testing.eventually import eventually, until
from async_processor.testing.servers import RedisServer
from async_processor.wire.result import ErrorCode, Result

Fleet = Callable[..., DaemonProcess]


def quota(**parameters: Any) -> dict[str, Any]:
    """A queue whose gate counts tenants."""
    gate = {"type": "redis-quota", "missing_attribute": "refuse", **parameters}
    return {"queue": {"gate": gate}}


def requests(tenant: str, count: int, *, deadline: str = "10m") -> list[Submission]:
    return [
        Submission(
            id=f"{tenant}-{number}",
            payload={"prompt": "hi", "max_tokens": 4, "user": f"{tenant}-{number}"},
            metadata={"userid": tenant},
            deadline=deadline,
        )
        for number in range(count)
    ]


class Eyes:
    """Watches a pool's ledger: which calls of a tenant run at once, and when they started."""

    def __init__(self, pool: SimulatedPool) -> None:
        self._ledger = pool.ledger
        self._called, self._answered = pool.ledger.called, pool.ledger.answered
        self.running: defaultdict[str, int] = defaultdict(int)
        self.most: defaultdict[str, int] = defaultdict(int)
        self.starts: defaultdict[str, list[float]] = defaultdict(list)
        pool.ledger.called = self.called  # type: ignore[method-assign]
        pool.ledger.answered = self.answered  # type: ignore[method-assign]

    def called(self, request_id: str) -> None:
        tenant = request_id.partition("-")[0]
        self._called(request_id)
        self.starts[tenant].append(time.monotonic())
        self.running[tenant] += 1
        self.most[tenant] = max(self.most[tenant], self.running[tenant])

    def answered(self, request_id: str) -> None:
        self.running[request_id.partition("-")[0]] -= 1
        self._answered(request_id)


async def results(producer: Producer, ids: Iterable[str]) -> Mapping[str, Result]:
    """Wait for the results of just these requests, once each."""
    wanted, found = set(ids), dict[str, Result]()
    async with asyncio.timeout(90):
        async for taken in producer.results():
            assert taken.result.id not in found
            found[taken.result.id] = taken.result
            await taken.ack()
            if found.keys() == wanted:
                return found
    raise AssertionError


async def parked(daemon: DaemonProcess, count: int, *, within: float = 60) -> None:
    async def as_many() -> bool:
        (queue,) = (await daemon.status())["queues"]
        return bool((queue["parked"], queue["backlog"]) == (count, 0))

    await eventually(as_many, within=within)


async def private_keys(server: RedisServer) -> set[str]:
    """What the daemon keeps in Redis for itself."""
    client = open_client(server.url)
    try:
        names = {key.decode() for key in await client.execute("KEYS", "*")}
    finally:
        await client.close()
    return {name for name in names if name.startswith(("{request-sortedset}", "quota:"))}


async def test_a_limit_holds_over_replicas_and_is_used_to_the_full(
    fleet: Fleet, producer: Producer, redis_server: RedisServer
) -> None:
    async with SimulatedPool(latency=0.2) as pool:
        eyes = Eyes(pool)
        gates = quota(mode="concurrency", limit=2, limits={"big": 4})
        daemons = [fleet(pool.url, workers=16, **gates) for _ in range(2)]
        await asyncio.gather(*(daemon.start() for daemon in daemons))
        started = time.monotonic()
        work = [*requests("small", 20), *requests("big", 40)]
        await producer.submit_many(work)
        found = await results(producer, [one.id for one in work])
        took = time.monotonic() - started
        assert all(result.status_code == 200 for result in found.values())
        assert eyes.most == {"small": 2, "big": 4}
        assert not pool.ledger.repeated()
        # Ten rounds of 0.2 s, and the way back from the lot for each; not a sweep for each.
        assert took < 10

        left = set[str]()

        async def nothing_is_left() -> bool:
            left.clear()
            left.update(await private_keys(redis_server))
            return left <= {"quota:{concurrency:userid}:wanted"}

        await eventually(nothing_is_left)


async def test_ten_thousand_requests_of_one_tenant_delay_nobody(
    fleet: Fleet, producer: Producer, redis_server: RedisServer
) -> None:
    async with SimulatedPool(latency=1.0) as pool:
        eyes = Eyes(pool)
        daemon = fleet(pool.url, workers=64, **quota(mode="concurrency", limit=2))
        await daemon.start()
        await producer.submit_many(requests("flood", 10_000))
        await until(lambda: eyes.most["flood"] == 2)
        await flood_parked(daemon, 9_900)
        client = open_client(redis_server.url)
        before = await calls(client.execute)
        began = time.monotonic()
        others = [one for tenant in "abcdefghij" for one in requests(tenant, 2)]
        await producer.submit_many(others)
        wanted = {one.id for one in others}
        async with asyncio.timeout(20):
            async for taken in producer.results():
                wanted.discard(taken.result.id)
                await taken.ack()
                if not wanted:
                    break
        took = time.monotonic() - began
        spent = await calls(client.execute) - before
        await client.close()
        assert took < 4, "the calls alone take one second"
        # With what its scripts do inside, and far less than one for each that is parked.
        assert spent < 2_000 * took
        assert eyes.most["flood"] == 2


async def flood_parked(daemon: DaemonProcess, count: int) -> None:
    async def done() -> bool:
        (queue,) = (await daemon.status())["queues"]
        return bool(queue["parked"] >= count and queue["backlog"] < 10)

    await eventually(done, within=60)


async def calls(execute: Callable[..., Any]) -> int:
    """Commands that Redis has executed for its clients."""
    lines = (await execute("INFO", "stats")).decode().splitlines()
    return next(int(line.split(":")[1]) for line in lines if line.startswith("total_commands"))


async def test_parked_requests_expire_on_time_and_cancelled_ones_are_told(
    fleet: Fleet, producer: Producer
) -> None:
    async with SimulatedPool(latency=30.0) as pool:
        daemon = fleet(pool.url, workers=8, **quota(mode="concurrency", limit=1))
        await daemon.start()
        await producer.submit_many(requests("a", 1))
        await until(lambda: pool.ledger.total == 1)
        short = requests("a", 4, deadline="4s")[1:]
        handles = await producer.submit_many(short)
        await parked(daemon, 3)
        assert await daemon.metric("gate_decisions_total", reason="quota_exhausted") == 3
        assert await daemon.metric("gate_decisions_total", reason="gate_closed") == 0
        assert await producer.cancel(handles[0])
        found = await results(producer, [one.id for one in short])
        late = time.time() - handles[0].deadline
        assert late < 2.5
        codes = [found[one.id].error_code for one in short]
        assert codes == [ErrorCode.CANCELLED, *[ErrorCode.DEADLINE_EXCEEDED] * 2]
        await parked(daemon, 0)


async def test_status_says_who_is_over_quota(fleet: Fleet, producer: Producer) -> None:
    async with SimulatedPool(latency=30.0) as pool:
        daemon = fleet(pool.url, workers=8, **quota(mode="concurrency", limit=1))
        await daemon.start()
        await producer.submit_many(requests("team", 3))
        await parked(daemon, 2)
        (queue,) = (await daemon.status())["queues"]
        assert queue["gate"]["reason"] == "over their quotas: team"
        assert "quota" in queue["why"]
        assert queue["oldest_deadline"] is not None


async def test_another_replicas_release_calls_back_at_once(
    fleet: Fleet, producer: Producer
) -> None:
    async with SimulatedPool(latency=2.0) as pool:
        gates = quota(mode="concurrency", limit=1)
        slow = {"transport": {"reclaim_interval": "60s"}}
        holder = fleet(pool.url, workers=1, **merged(pool.url, gates, slow))
        await holder.start()
        await producer.submit_many(requests("a", 1))
        await until(lambda: pool.ledger.total == 1)
        other = fleet(pool.url, workers=4, **merged(pool.url, gates, slow))
        await other.start()
        (second,) = requests("a", 2)[1:]
        await producer.submit(second)
        await parked(other, 1)
        began = time.monotonic()
        await until(lambda: pool.ledger.total == 2)
        assert time.monotonic() - began < 10, "long before the sweep"


def merged(gateway: str, gates: Mapping[str, Any], slow: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the transport beside those of its one queue."""
    queue = {"igw_base_url": gateway, **gates["queue"]}
    return {"transport": {**slow["transport"], "queues": [queue]}}


async def test_a_killed_holders_slots_come_back(
    fleet: Fleet, producer: Producer, redis_server: RedisServer
) -> None:
    async with SimulatedPool(latency=1.0) as pool:
        gates = quota(mode="concurrency", limit=2, window="2s")
        holder = fleet(pool.url, workers=8, **gates)
        await holder.start()
        work = requests("a", 6)
        await producer.submit_many(work)
        await until(lambda: pool.ledger.total == 2)
        await holder.kill()
        heir = fleet(pool.url, workers=8, **gates)
        await heir.start()
        found = await results(producer, [one.id for one in work])
        assert all(result.status_code == 200 for result in found.values())


async def test_a_rate_holds_and_parked_requests_come_back_with_time(
    fleet: Fleet, producer: Producer
) -> None:
    async with SimulatedPool(latency=0.0) as pool:
        eyes = Eyes(pool)
        gates = quota(limit=4, window="1s")
        daemons = [fleet(pool.url, workers=16, **gates) for _ in range(2)]
        await asyncio.gather(*(daemon.start() for daemon in daemons))
        work = requests("a", 16)
        began = time.monotonic()
        await producer.submit_many(work)
        await results(producer, [one.id for one in work])
        assert time.monotonic() - began < 15
        starts = sorted(eyes.starts["a"])
        # The way from the gate to the pool differs a little from call to call.
        assert all(later - first > 0.8 for first, later in zip(starts, starts[4:], strict=False))


async def test_a_gate_that_is_gone_gives_its_lots_back(fleet: Fleet, producer: Producer) -> None:
    async with SimulatedPool(latency=30.0) as pool:
        first = fleet(pool.url, workers=8, **quota(mode="concurrency", limit=1))
        await first.start()
        await producer.submit_many(requests("a", 5))
        await parked(first, 4)
        await first.kill()
    async with SimulatedPool(latency=0.0) as pool:
        second = fleet(pool.url, workers=8)
        await second.start()
        await results(producer, [one.id for one in requests("a", 5)])


async def test_quotas_close_while_their_own_redis_is_away(fleet: Fleet, producer: Producer) -> None:
    with RedisServer() as counter:
        async with SimulatedPool(latency=0.0) as pool:
            gates = quota(mode="concurrency", limit=2, url=counter.url, window="1s")
            daemon = fleet(pool.url, workers=8, **gates)
            await daemon.start()
            await producer.submit_many(requests("a", 2))
            await results(producer, ["a-0", "a-1"])
            counter.kill()
            await producer.submit_many(requests("b", 2))

            async def closed() -> bool:
                (queue,) = (await daemon.status())["queues"]
                return bool(queue["gate"]["decision"] == "closed")

            await eventually(closed)
            await asyncio.sleep(2)  # gauges are set once a second, and one not set counts as 0 too
            assert await daemon.metric("gate_metric_source_available") == 0
            assert pool.ledger.total == 2
            counter.start()
            await results(producer, ["b-0", "b-1"])
            await eventually(lambda: _is(daemon, "gate_metric_source_available", 1))


async def _is(daemon: DaemonProcess, name: str, value: float) -> bool:
    return await daemon.metric(name) == value
