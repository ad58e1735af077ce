"""A replica of two processes: to everybody outside it is one, whoever of them dies and whenever."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec

from async_processor.producer import Producer, Submission
from async_processor.redis_io.connect import open_client
from async_processor.sim.pool import SimulatedPool
from async_processor.testing.daemons import DaemonProcess
from async_processor.testing.daemons import short_lived_settings as settings
from async_processor.testing.eventually import eventually, until
from async_processor.testing.gateway import Gateway
from async_processor.testing.result_reading import reading
from async_processor.testing.servers import RedisServer

Fleet = Callable[..., DaemonProcess]

LONG_LEASES = {"lease_ttl": "10m"}
"""So long that nobody could wait for one to end."""
QUEUE = "request-sortedset"


def submissions(count: int) -> list[Submission]:
    return [
        Submission(id=f"r-{number}", payload={"prompt": "hi", "user": f"r-{number}"}, deadline="1h")
        for number in range(count)
    ]


def calls_of(gateway: Gateway) -> Counter[str]:
    return Counter(arrival.payload["user"] for arrival in gateway.arrivals)


async def answered(gateway: Gateway, seen: Counter[str], count: int) -> None:
    """Answer every call until each request has its result, and see that it has no second one."""

    async def all_here() -> bool:
        for arrival in gateway.open:
            arrival.answer()
        return len(seen) == count

    await eventually(all_here)
    assert set(seen.values()) == {1}


async def processes(daemon: DaemonProcess) -> Sequence[Mapping[str, Any]]:
    told: Sequence[Mapping[str, Any]] = (await daemon.status())["processes"]
    return told


async def whole(daemon: DaemonProcess, *without: int) -> None:
    """Wait until both processes are ready, and those `without` are not among them."""

    async def ready() -> bool:
        told = await processes(daemon)
        pids = {each["pid"] for each in told if each["ready"]}
        return len(pids) == 2 and not pids.intersection(without)

    await eventually(ready)


async def in_broker(server: RedisServer) -> tuple[int, int]:
    """How many wait, and how many are leased."""
    client = open_client(server.url)
    try:
        leases = await client.execute("ZCARD", f"{{{QUEUE}}}:leases")
        return await client.execute("ZCARD", QUEUE), leases
    finally:
        await client.close()


async def shows(daemon: DaemonProcess, value: float, name: str, **labels: str) -> None:
    """Wait until a metric has this value: it is counted just after what can be seen outside."""

    async def as_much() -> bool:
        return await daemon.metric(name, **labels) == value

    await eventually(as_much)


def lives(pid: int) -> bool:
    """A process that nobody has buried yet is dead all the same."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_both_work_and_look_like_one(fleet: Fleet, producer: Producer) -> None:
    async with (
        Gateway(hold=True) as gateway,
        fleet(gateway.url, workers=5, processes=2) as daemon,
        reading(producer) as seen,
    ):
        await producer.submit_many(submissions(20))
        await until(lambda: len(gateway.open) == 5)  # more than either has workers
        told = await daemon.status()
        assert told["ready"]
        assert [pool["workers"] for pool in told["pools"]] == [5]
        assert [queue["inflight"] for queue in told["queues"]] == [5]
        await shows(daemon, 5, "pool_worker_limit", pool_name="default")
        await shows(daemon, 5, "inflight_requests")
        await answered(gateway, seen, 20)
        assert gateway.most_open == 5
        assert not [each for each, times in calls_of(gateway).items() if times > 1]
        for name in ("request_total", "dispatched_requests_total", "successful_requests_total"):
            await shows(daemon, 20, name)
        await shows(daemon, 20, "inference_latency_time_millis_count")
        assert len(daemon.events("ready")) == 3, "each process says so, and the replica"


async def test_what_a_killed_process_held_runs_again_at_once_and_has_one_result(
    fleet: Fleet, producer: Producer, redis_server: RedisServer
) -> None:
    limited = {"gate": {"type": "local-max-concurrency", "limit": 4}}
    async with (
        Gateway(hold=True) as gateway,
        fleet(gateway.url, workers=8, processes=2, transport=LONG_LEASES, queue=limited) as daemon,
        reading(producer) as seen,
    ):
        await producer.submit_many(submissions(8))
        await until(lambda: len(gateway.open) == 4)
        counted = await daemon.metric("dispatched_requests_total")
        first, second = [each["pid"] for each in await processes(daemon)]
        os.kill(first, signal.SIGKILL)
        await until(lambda: len(gateway.arrivals) == 6)
        assert await daemon.metric("dispatched_requests_total") >= counted
        await whole(daemon, first)
        assert second in [each["pid"] for each in await processes(daemon)]
        repeated = [each for each, times in calls_of(gateway).items() if times > 1]
        assert len(repeated) == 2, "its two calls, and no others"
        await shows(daemon, 2, "leases_reclaimed_total")  # a death counts as a delivery
        await answered(gateway, seen, 8)
        assert gateway.most_open <= 6, "what the dead one had sent was still open"
        await shows(daemon, 8, "successful_requests_total")
        assert await daemon.terminate() == 0
    assert await in_broker(redis_server) == (0, 0)


async def test_a_drain_lets_calls_end_and_a_second_signal_gives_them_back(
    fleet: Fleet, producer: Producer, redis_server: RedisServer
) -> None:
    async with Gateway(hold=True) as gateway, reading(producer) as seen:
        first, second = (
            fleet(gateway.url, workers=4, processes=2, drain_timeout="10m") for _ in range(2)
        )
        await first.start()
        await producer.submit_many(submissions(6))
        await until(lambda: len(gateway.open) == 4)
        first.send(signal.SIGTERM)
        await eventually(lambda: drains(first))
        for arrival in gateway.open:
            arrival.answer()
        assert await first.ended() == 0
        assert len(gateway.arrivals) == 4, "a draining replica takes nothing new"

        await second.start()
        await until(lambda: len(gateway.open) == 2)
        for _ in range(2):
            second.send(signal.SIGTERM)
            await eventually(lambda: drains(second))
        assert await second.ended() == 0
        assert await in_broker(redis_server) == (2, 0)
        await until(lambda: len(seen) == 4)


async def test_a_draining_replica_takes_no_changed_file_over(
    fleet: Fleet, producer: Producer, redis_server: RedisServer
) -> None:
    async with Gateway(hold=True) as gateway:
        daemon = fleet(gateway.url, workers=2, processes=2, drain_timeout="10m")
        await daemon.start()
        await producer.submit_many(submissions(6))
        await until(lambda: len(gateway.open) == 2)
        daemon.send(signal.SIGTERM)
        await eventually(lambda: drains(daemon))
        changed = {"request_path_url": "/v1/chat/completions"}
        daemon.configure(settings(redis_server.url, gateway.url, workers=6, queue=changed))
        daemon.send(signal.SIGHUP)
        for _ in range(3):  # a new intake would claim meanwhile
            await daemon.status()
        for arrival in gateway.open:
            arrival.answer()
        assert await daemon.ended() == 0
        assert len(gateway.arrivals) == 2
        assert not daemon.events("configuration_reloaded")


async def drains(daemon: DaemonProcess) -> bool:
    return not daemon.running or len(daemon.events("draining")) == 2


async def test_a_changed_file_is_taken_over_by_all_and_an_invalid_one_by_none(
    fleet: Fleet, producer: Producer, redis_server: RedisServer
) -> None:
    async with (
        Gateway(hold=True) as gateway,
        fleet(gateway.url, workers=2, processes=2) as daemon,
    ):
        await producer.submit_many(submissions(6))
        await until(lambda: len(gateway.open) == 2)
        daemon.configure(settings(redis_server.url, gateway.url, workers=5, processes=3))
        daemon.send(signal.SIGHUP)
        await until(lambda: len(gateway.open) == 5)
        await until(lambda: len(daemon.events("configuration_reloaded")) == 1)
        await shows(daemon, 1, "queue_config_reloads_total", result="success")
        assert [event["path"] for event in daemon.events("restart_needed")] == ["processes"]

        daemon.replace_config("transport: {queues: []}\n")
        daemon.send(signal.SIGHUP)
        await until(lambda: bool(daemon.events("configuration_not_reloaded")))
        await shows(daemon, 1, "queue_config_reloads_total", result="error")
        paths = [event["error"] for event in daemon.events("configuration_not_reloaded")]
        assert len(paths) == len(set(paths)), "each mistake is told once"

        (killed, _) = [each["pid"] for each in await processes(daemon)]
        os.kill(killed, signal.SIGKILL)
        await whole(daemon, killed)  # under the configuration that is in force
        await shows(daemon, 5, "pool_worker_limit", pool_name="default")
        await shows(daemon, 1, "queue_config_reloads_total", result="success")


async def test_without_its_supervisor_nobody_stays(
    fleet: Fleet, producer: Producer, redis_server: RedisServer
) -> None:
    async with SimulatedPool(latency=0.2) as pool:
        daemon = fleet(pool.url, workers=4, processes=2, transport=LONG_LEASES)
        await daemon.start()
        pids = [each["pid"] for each in await processes(daemon)]
        async with reading(producer) as seen:
            await producer.submit_many(submissions(40))
            await until(lambda: len(seen) > 4)
            await daemon.kill()
            await until(lambda: not any(map(lives, pids)))
            waiting, leased = await in_broker(redis_server)
            assert leased == 0
            await until(lambda: len(seen) + waiting == 40)
            assert set(seen.values()) == {1}


async def test_who_cannot_start_ends_as_one_process_would(
    fleet: Fleet, redis_server: RedisServer
) -> None:
    client = open_client(redis_server.url)
    await client.execute("SET", "retry-sortedset", "no sorted set")
    await client.close()
    assert await ends_alike(fleet) == 2


async def test_who_is_not_let_in_ends_as_one_process_would(fleet: Fleet) -> None:
    with RedisServer(args=["--requirepass", "right"]) as server:
        wrong = {"url": server.url.replace("//", "//:wrong@")}
        assert await ends_alike(fleet, transport=wrong) == 1


async def ends_alike(fleet: Fleet, **changes: Any) -> int:
    """Say the same with one process and with two, at the first try; returns the exit code."""
    told, codes = [], set()
    for number in (1, 2):
        daemon = fleet("http://127.0.0.1:9", processes=number, **changes)
        await daemon.spawn()
        codes.add(await daemon.ended())
        told.append([line for line in daemon.log().splitlines() if not line.startswith("{")])
        tries = Counter(event.get("process") for event in daemon.events("stopped"))
        assert set(tries.values()) == {1}
    assert told[0] == told[1]
    (code,) = codes
    return code


async def test_a_broker_that_is_away_at_the_start_is_waited_for(
    fleet: Fleet, redis_server: RedisServer
) -> None:
    redis_server.stop()
    daemon = fleet("http://127.0.0.1:9", processes=2)
    await daemon.spawn()
    await eventually(lambda: wait_for_the_broker(daemon))
    redis_server.start()
    await whole(daemon)
    assert not daemon.events("process_died")
    assert not daemon.events("process_hangs")


async def wait_for_the_broker(daemon: DaemonProcess) -> bool:
    """Whether all are up, so that nobody counts as hung, and say what they wait for."""
    try:
        told = await processes(daemon)
    except httpx.TransportError:
        return False
    return len(told) == 2 and all("cannot be reached" in each["why"] for each in told)


async def test_processes_killed_again_and_again_lose_and_double_nothing(
    fleet: Fleet, producer: Producer
) -> None:
    async with (
        SimulatedPool(latency=0.1) as pool,
        fleet(pool.url, workers=16, processes=2, transport=LONG_LEASES) as daemon,
        reading(producer) as seen,
    ):
        await producer.submit_many(submissions(600))
        counted = 0.0
        for turn in range(4):
            await until(lambda: len(seen) >= 100 * (turn + 1))  # noqa: B023
            await whole(daemon)
            os.kill((await processes(daemon))[turn % 2]["pid"], signal.SIGKILL)
            counted, before = await daemon.metric("successful_requests_total"), counted
            assert counted >= before, "a counter went down"
        await until(lambda: len(seen) == 600)
        assert set(seen.values()) == {1}
        assert await daemon.terminate() == 0


async def test_what_a_tenant_uses_of_its_quota_counts_once(
    fleet: Fleet, producer: Producer
) -> None:
    gate = {"type": "redis-quota", "mode": "concurrency", "limits": {"a": 3}}
    async with (
        Gateway(hold=True) as gateway,
        fleet(gateway.url, workers=8, processes=2, queue={"gate": gate}) as daemon,
        reading(producer) as seen,
    ):
        of_a = [msgspec.structs.replace(each, metadata={"userid": "a"}) for each in submissions(5)]
        await producer.submit_many(of_a)
        await until(lambda: len(gateway.open) == 3)
        await shows(daemon, 3, "quota_in_use", tenant="a")
        await shows(daemon, 3, "quota_limit", tenant="a")
        await answered(gateway, seen, 5)
        await shows(daemon, 5, "tenant_started_requests_total", tenant="a")
        await shows(daemon, 0, "quota_in_use", tenant="a")
