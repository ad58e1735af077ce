"""Tenants and their quotas, with real processes: limits hold over replicas, kills and time, and no
tenant's backlog delays another's requests or is forgotten."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from functools import partial
from typing import Any

from async_processor.producer import Producer, Submission
from async_processor.redis_io.client import RedisClient
from async_processor.redis_io.connect import open_client
from async_processor.sim.pool import SimulatedPool
from async_processor.testing.daemons import SHORT_LEASES, DaemonProcess
from async_processor.testing.eventually import eventually, until
from async_processor.testing.gateway import Gateway
from async_processor.testing.messages import message
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
    async with asyncio.timeout(200):
        async for taken in producer.results():
            assert taken.result.id not in found
            found[taken.result.id] = taken.result
            await taken.ack()
            if found.keys() == wanted:
                return found
    raise AssertionError


async def parked(daemon: DaemonProcess, count: int) -> None:
    async def as_many() -> bool:
        (queue,) = (await daemon.status())["queues"]
        return bool((queue["parked"], queue["backlog"]) == (count, 0))

    await eventually(as_many)


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
    """Whoever waits is called back because a slot comes free: the sweep would come too late."""
    async with SimulatedPool(latency=0.2) as pool:
        eyes = Eyes(pool)
        gates = quota(mode="concurrency", limit=2, limits={"big": 4})
        unswept = {"transport": {"reclaim_interval": "10m"}}
        settings = merged(pool.url, gates, unswept)
        daemons = [fleet(pool.url, workers=16, **settings) for _ in range(2)]
        await asyncio.gather(*(daemon.start() for daemon in daemons))
        work = [*requests("small", 20), *requests("big", 40)]
        await producer.submit_many(work)
        found = await results(producer, [one.id for one in work])
        assert all(result.status_code == 200 for result in found.values())
        assert eyes.most == {"small": 2, "big": 4}
        assert not pool.ledger.repeated()

        left = set[str]()

        async def nothing_is_left() -> bool:
            left.clear()
            left.update(await private_keys(redis_server))
            return left <= {"quota:{concurrency:userid}:wanted"}

        await eventually(nothing_is_left)


def tenants(gateway: Gateway) -> Counter[str]:
    """Whose calls have arrived at a gateway."""
    return Counter(each.payload["user"].partition("-")[0] for each in gateway.arrivals)


async def refusals(daemon: DaemonProcess) -> float:
    """Claims in vain: of requests that were over their quota and went into their lot."""
    return await daemon.metric("gate_decisions_total", reason="quota_exhausted")


async def test_ten_thousand_requests_of_one_tenant_delay_nobody(
    fleet: Fleet, producer: Producer
) -> None:
    async with Gateway(hold=True) as gateway:
        daemon = fleet(gateway.url, workers=64, **quota(mode="concurrency", limit=1))
        await daemon.start()
        await producer.submit_many(requests("flood", 10_000))
        await flood_parked(daemon, 9_999)
        assert tenants(gateway) == {"flood": 1}
        looked_past = await refusals(daemon)
        assert looked_past == 9_999, "each was claimed once and parked once"

        await _others_are_answered(gateway, producer)
        assert tenants(gateway)["flood"] == 1, "its one call is still held"
        assert await refusals(daemon) == looked_past, "nothing of the flood was claimed meanwhile"

        for answered in range(1, 11):
            next(each for each in gateway.open if "flood" in each.payload["user"]).answer()
            await until(partial(_has_arrived, gateway, "flood", answered + 1))
        # One claim for one that runs; a daemon that is held up for long may look once too often.
        assert await refusals(daemon) - looked_past <= 10
        users = [
            each.payload["user"] for each in gateway.arrivals if "flood" in each.payload["user"]
        ]
        assert users == [f"flood-{number}" for number in range(11)], "in the order of deadlines"


async def _others_are_answered(gateway: Gateway, producer: Producer) -> None:
    others = [one for tenant in "abcdefghijklmnopqrst" for one in requests(tenant, 1)]
    await producer.submit_many(others)
    found = asyncio.create_task(results(producer, [one.id for one in others]))
    while not found.done():
        for each in gateway.open:
            if "flood" not in each.payload["user"]:
                each.answer()
        await asyncio.sleep(0.01)
    assert all(result.status_code == 200 for result in (await found).values())


def _has_arrived(gateway: Gateway, tenant: str, count: int) -> bool:
    return tenants(gateway)[tenant] == count


async def test_a_patient_gate_lets_no_tenant_take_the_workers_of_others(
    fleet: Fleet, producer: Producer
) -> None:
    """In memory the waiting requests of one tenant would take all four."""
    inner = {"type": "redis-quota", "mode": "concurrency", "limit": 1, "missing_attribute": "allow"}
    patient = {"type": "wait-on-refuse", "gate": inner}
    async with Gateway(hold=True) as gateway:
        pools = [{"id": "default", "workers": 4, "gate": patient}]
        daemon = fleet(gateway.url, worker_pools=pools)
        await daemon.start()
        await producer.submit_many(requests("flood", 20))
        await parked(daemon, 19)
        assert await daemon.metric("gate_waiting_requests") == 0
        await _others_are_answered(gateway, producer)
        assert tenants(gateway)["flood"] == 1


async def test_cancelled_requests_are_told_wherever_they_stand_and_the_others_run(
    fleet: Fleet, producer: Producer
) -> None:
    chance = random.Random(7)
    async with Gateway(hold=True) as gateway:
        daemon = fleet(gateway.url, workers=8, **quota(mode="concurrency", limit=1))
        await daemon.start()
        work = [one for tenant in "abc" for one in requests(tenant, 12)]
        handles = await producer.submit_many(work)
        await parked(daemon, 33)
        cancelled = set[str]()
        for handle in chance.sample(handles, 15):
            assert await producer.cancel(handle)
            cancelled.add(handle.id)
        found = asyncio.create_task(results(producer, [one.id for one in work]))
        while not found.done():
            for each in gateway.open:
                each.answer()
            await asyncio.sleep(0.01)
        for request_id, result in (await found).items():
            expected = ErrorCode.CANCELLED if request_id in cancelled else ""
            # What ran already has its answer or its end, whichever came first.
            ran = any(each.payload["user"] == request_id for each in gateway.arrivals)
            assert result.error_code == expected or (ran and result.status_code == 200)
        assert len(tenants(gateway)) == 3


async def test_a_killed_daemon_loses_no_parked_request_and_doubles_none(
    fleet: Fleet, producer: Producer
) -> None:
    async with SimulatedPool(latency=0.02) as pool:
        gates = quota(mode="concurrency", limit=2, window="1s") | {"transport": SHORT_LEASES}
        work = [one for tenant in "abcd" for one in requests(tenant, 50)]
        first = fleet(pool.url, workers=16, **gates)
        await first.start()
        await producer.submit_many(work)
        found = asyncio.create_task(results(producer, [one.id for one in work]))
        await until(lambda: pool.ledger.total >= 20)
        await first.kill()
        second = fleet(pool.url, workers=16, **gates)
        await second.start()
        await until(lambda: pool.ledger.total >= 80)
        await second.kill()
        third = fleet(pool.url, workers=16, **gates)
        await third.start()
        answered = await found
        assert len(answered) == 200
        assert all(result.status_code == 200 for result in answered.values())
        assert not [each async for each in _left_over(producer)]
        await parked(third, 0)


async def flood_parked(daemon: DaemonProcess, count: int) -> None:
    async def done() -> bool:
        (queue,) = (await daemon.status())["queues"]
        return bool(queue["parked"] >= count and queue["backlog"] < 10)

    await eventually(done)


async def _left_over(producer: Producer) -> AsyncIterator[Result]:
    """Results that stand in the queue although all requests have had theirs."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.5):
            async for taken in producer.results():
                yield taken.result


async def test_parked_requests_expire_on_time_and_cancelled_ones_are_told(
    fleet: Fleet, producer: Producer
) -> None:
    async with Gateway(hold=True) as gateway:
        daemon = fleet(gateway.url, workers=8, **quota(mode="concurrency", limit=1))
        await daemon.start()
        running, cancelled, *expiring = [*requests("a", 2), *requests("a", 4, deadline="8s")[2:]]
        await producer.submit(running)
        await until(lambda: len(gateway.open) == 1)
        handles = await producer.submit_many([cancelled, *expiring])
        await parked(daemon, 3)
        assert await daemon.metric("gate_decisions_total", reason="quota_exhausted") == 3
        assert await daemon.metric("gate_decisions_total", reason="gate_closed") == 0
        assert await producer.cancel(handles[0])
        found = await results(producer, [one.id for one in expiring])
        assert time.time() >= handles[1].deadline
        codes = [found[one.id].error_code for one in expiring]
        assert codes == [ErrorCode.DEADLINE_EXCEEDED] * 2
        gateway.open[0].answer()  # its slot calls the cancelled one back
        found = await results(producer, [cancelled.id])
        assert found[cancelled.id].error_code is ErrorCode.CANCELLED
        await parked(daemon, 0)
        assert len(gateway.arrivals) == 1


async def test_status_says_who_is_over_quota(fleet: Fleet, producer: Producer) -> None:
    async with SimulatedPool(latency=600.0) as pool:
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
    async with Gateway(hold=True) as gateway:
        gates = quota(mode="concurrency", limit=1)
        unswept = {"transport": {"reclaim_interval": "10m"}}
        holder = fleet(gateway.url, workers=1, **merged(gateway.url, gates, unswept))
        await holder.start()
        await producer.submit_many(requests("a", 1))
        await until(lambda: len(gateway.open) == 1)
        other = fleet(gateway.url, workers=4, **merged(gateway.url, gates, unswept))
        await other.start()
        (second,) = requests("a", 2)[1:]
        await producer.submit(second)
        await parked(other, 1)
        gateway.open[0].answer()
        await until(lambda: len(gateway.arrivals) == 2)


def merged(gateway: str, gates: Mapping[str, Any], slow: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the transport beside those of its one queue."""
    queue = {"igw_base_url": gateway, **gates["queue"]}
    return {"transport": {**slow["transport"], "queues": [queue]}}


async def test_a_killed_holders_slots_come_back(
    fleet: Fleet, producer: Producer, redis_server: RedisServer
) -> None:
    async with SimulatedPool(latency=1.0) as pool:
        gates = quota(mode="concurrency", limit=2, window="2s") | {"transport": SHORT_LEASES}
        holder = fleet(pool.url, workers=8, **gates)
        await holder.start()
        work = requests("a", 6)
        await producer.submit_many(work)
        await until(lambda: pool.ledger.total >= 2)
        await holder.kill()
        heir = fleet(pool.url, workers=8, **gates)
        await heir.start()
        found = await results(producer, [one.id for one in work])
        assert all(result.status_code == 200 for result in found.values())


async def test_a_rate_holds_for_bytes_that_are_sent_again(
    fleet: Fleet, producer: Producer, redis_server: RedisServer
) -> None:
    """After their result, and while they run; nothing is left of what has its result."""
    deadline = int(time.time()) + 600
    body = message("a-1", deadline=deadline, metadata={"userid": "a"}, payload={"user": "a-1"})
    client = open_client(redis_server.url)
    async with Gateway(hold=True) as gateway:
        daemon = fleet(gateway.url, workers=8, **quota(limit=3, window="10m"))
        await daemon.start()
        for sent in range(1, 4):
            await client.execute("ZADD", "request-sortedset", deadline, body)
            await until(partial(_has_arrived, gateway, "a", sent))
            if sent == 1:
                gateway.open[0].answer()
                await eventually(partial(_has_results, client, 1))
        await client.execute("ZADD", "request-sortedset", deadline, body)
        await parked(daemon, 1)
        for each in gateway.open:
            each.answer()
        await eventually(partial(_has_results, client, 3))
        await parked(daemon, 1)
        assert tenants(gateway) == {"a": 3}

        async def nothing_is_remembered() -> bool:
            return not any(":charged:" in name for name in await private_keys(redis_server))

        await eventually(nothing_is_remembered)
    await client.close()


async def test_a_retry_is_not_charged_again(fleet: Fleet, producer: Producer) -> None:
    async with SimulatedPool() as pool:
        pool.faults.set(error=1, error_status=503)
        daemon = fleet(pool.url, workers=8, **quota(limit=1, window="10m"))
        await daemon.start()
        await producer.submit_many(requests("a", 1))
        await until(lambda: pool.ledger.total >= 3)
        pool.faults.clear()
        (result,) = (await results(producer, ["a-0"])).values()
        assert result.status_code == 200
        await producer.submit_many(requests("a", 2)[1:])
        await parked(daemon, 1)


async def _has_results(client: RedisClient, count: int) -> bool:
    return bool(await client.execute("LLEN", "result-list") == count)


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
        # The way from the gate to the pool may take long, but nothing is there before its turn.
        starts = [start - began for start in sorted(eyes.starts["a"])]
        assert all(start > number // 4 - 0.1 for number, start in enumerate(starts))


async def test_a_gate_that_is_gone_gives_its_lots_back(fleet: Fleet, producer: Producer) -> None:
    async with SimulatedPool(latency=600.0) as pool:
        gates = quota(mode="concurrency", limit=1)
        first = fleet(pool.url, workers=8, transport=SHORT_LEASES, **gates)
        await first.start()
        await producer.submit_many(requests("a", 5))
        await parked(first, 4)
        await first.kill()
    async with SimulatedPool(latency=0.0) as pool:
        second = fleet(pool.url, workers=8, transport=SHORT_LEASES)
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
            await eventually(partial(_shows, daemon, "gate_metric_source_available", 0))
            assert pool.ledger.total == 2
            counter.start()
            await results(producer, ["b-0", "b-1"])
            await eventually(partial(_shows, daemon, "gate_metric_source_available", 1))


async def _shows(daemon: DaemonProcess, name: str, value: float) -> bool:
    """Whether it has that value; of one that is not shown `metric` says 0."""
    page = (await daemon._get(daemon.metrics_port, "/metrics")).text
    return f"async_{name}{{" in page and await daemon.metric(name) == value
