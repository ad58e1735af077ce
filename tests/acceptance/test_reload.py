"""A changed configuration file is taken over without losing, cutting or repeating a request."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

from async_processor.producer import Producer, Submission
from async_processor.sim.pool import SimulatedPool
from async_processor.testing.daemons import DaemonProcess
from async_processor.testing.daemons import short_lived_settings as settings
from async_processor.testing.eventually import eventually, until
from async_processor.testing.gateway import Gateway
from async_processor.testing.servers import RedisServer

Fleet = Callable[..., DaemonProcess]
PAYLOAD = {"prompt": "hi", "max_tokens": 4}
CLOSED = {"type": "endpoint-scrape", "url": "http://127.0.0.1:9/metrics", "metric": "none"}


async def reloaded(daemon: DaemonProcess, times: int = 1) -> None:
    await until(lambda: len(daemon.events("configuration_reloaded")) >= times)


def has_arrived(gateway: Gateway, count: int) -> bool:
    return len(gateway.arrivals) >= count


def one(number: int) -> Submission:
    return Submission(id=f"r-{number}", payload={**PAYLOAD, "user": f"r-{number}"}, deadline="10m")


async def test_a_gate_opens_workers_grow_and_nothing_that_runs_is_cut(
    fleet: Fleet, producer: Producer, redis_server: RedisServer
) -> None:
    async with Gateway(hold=True) as gateway, fleet(gateway.url, workers=2) as daemon:
        handles = [await producer.submit(one(number)) for number in range(8)]
        await until(lambda: len(gateway.open) == 2)
        daemon.configure(settings(redis_server.url, gateway.url, workers=6))
        await reloaded(daemon)
        await until(lambda: len(gateway.open) == 6)
        assert await daemon.metric("pool_worker_limit", pool_name="default") == 6
        for arrived in range(1, 9):
            await until(partial(has_arrived, gateway, arrived))
            gateway.arrivals[arrived - 1].answer()
        for handle in handles:
            assert (await producer.result(handle, timeout=60)).status_code == 200
        assert len(gateway.arrivals) == 8
        assert await daemon.metric("queue_config_reloads_total", result="success") == 1


async def test_workers_change_and_a_limit_on_what_runs_holds_all_the_time(
    fleet: Fleet, producer: Producer, redis_server: RedisServer
) -> None:
    limited = {"gate": {"type": "local-max-concurrency", "limit": 3}}
    async with (
        Gateway(hold=True) as gateway,
        fleet(gateway.url, workers=8, queue=limited) as daemon,
    ):
        handles = [await producer.submit(one(number)) for number in range(20)]
        await until(lambda: len(gateway.open) == 3)

        async def workers(number: int) -> None:
            daemon.configure(settings(redis_server.url, gateway.url, workers=number, queue=limited))
            daemon.send(signal.SIGHUP)

            async def taken_over() -> bool:
                return await daemon.metric("pool_worker_limit", pool_name="default") == number

            await eventually(taken_over)

        async def one_ends_and_one_begins() -> None:
            before = len(gateway.arrivals)
            gateway.open[0].answer()
            await until(lambda: len(gateway.arrivals) > before)

        for number in (6, 32, 2, 5):
            await workers(number)
            if number >= 3:
                await one_ends_and_one_begins()

        async def all_answered() -> bool:
            for arrival in gateway.open:
                arrival.answer()
            return len(gateway.arrivals) == len(handles)

        await eventually(all_answered)
        for handle in handles:
            assert (await producer.result(handle, timeout=60)).status_code == 200
        assert gateway.most_open == 3
        assert len(gateway.arrivals) == len(handles), "a call was cut off and repeated"


async def test_a_closed_gate_replaced_by_an_open_one_lets_the_backlog_through(
    fleet: Fleet, producer: Producer, redis_server: RedisServer
) -> None:
    async with (
        SimulatedPool(latency=0) as pool,
        fleet(pool.url, queue={"gate": CLOSED}) as daemon,
    ):
        handle = await producer.submit(one(1))

        async def held_back() -> bool:
            return bool((await daemon.status())["queues"][0]["why"])

        await eventually(held_back)
        daemon.configure(settings(redis_server.url, pool.url))
        assert (await producer.result(handle, timeout=60)).status_code == 200


async def test_queues_come_and_go(fleet: Fleet, redis_server: RedisServer) -> None:
    async with SimulatedPool(latency=1.0) as pool, fleet(pool.url) as daemon:

        def with_queues(*names: str) -> dict[str, Any]:
            queues = [{"queue_name": name, "igw_base_url": pool.url} for name in names]
            return settings(redis_server.url, pool.url, transport={"queues": queues})

        async with (
            Producer(redis_server.url) as old,
            Producer(redis_server.url, queue="second") as new,
        ):
            running = await old.submit(one(1))
            await until(lambda: pool.ledger.total == 1)
            daemon.configure(with_queues("second"))
            await reloaded(daemon)
            added = await new.submit(one(2))
            assert (await new.result(added, timeout=60)).status_code == 200
            assert (await old.result(running, timeout=60)).status_code == 200
            waiting = await old.submit(one(3))
            await asyncio.sleep(0.5)
            assert pool.ledger.calls["r-3"] == 0
            daemon.configure(with_queues("request-sortedset", "second"))
            assert (await old.result(waiting, timeout=60)).status_code == 200
        assert not pool.ledger.repeated()


async def test_an_invalid_file_keeps_the_old_configuration_and_says_so(
    fleet: Fleet, producer: Producer
) -> None:
    async with SimulatedPool(latency=0) as pool, fleet(pool.url) as daemon:
        daemon.replace_config("transport: {queues: [{igw_base_url: 'ftp://nowhere'}]}\n")
        await until(lambda: bool(daemon.events("configuration_not_reloaded")))
        (event, *_) = daemon.events("configuration_not_reloaded")
        assert "igw_base_url" in event["error"]
        assert await daemon.metric("queue_config_reloads_total", result="error") == 1
        handle = await producer.submit(one(1))
        assert (await producer.result(handle, timeout=60)).status_code == 200


async def test_sighup_reloads_at_once(fleet: Fleet) -> None:
    async with SimulatedPool(latency=0) as pool, fleet(pool.url) as daemon:
        daemon.send(signal.SIGHUP)
        await reloaded(daemon)
        assert await daemon.terminate() == 0


async def test_sighup_and_a_changed_file_while_the_broker_is_away_are_heeded_when_it_is_back(
    fleet: Fleet, redis_server: RedisServer
) -> None:
    async with SimulatedPool(latency=0) as pool:
        daemon = fleet(pool.url, workers=2)
        redis_server.stop()
        await daemon.spawn()
        await until(lambda: bool(daemon.events("starting")))
        daemon.configure(settings(redis_server.url, pool.url, workers=6))
        daemon.send(signal.SIGHUP)
        redis_server.start()
        await eventually(daemon.ready)
        await reloaded(daemon)
        assert await daemon.metric("pool_worker_limit", pool_name="default") == 6
        assert await daemon.terminate() == 0


async def test_sighup_does_not_end_the_drain(fleet: Fleet, producer: Producer) -> None:
    async with Gateway(hold=True) as gateway, fleet(gateway.url) as daemon:
        handle = await producer.submit(one(1))
        await until(lambda: len(gateway.open) == 1)
        daemon.send(signal.SIGTERM)
        await until(lambda: bool(daemon.events("draining")))
        daemon.send(signal.SIGHUP)
        gateway.open[0].answer()
        assert await daemon.ended() == 0
        assert (await producer.result(handle, timeout=60)).status_code == 200


async def test_what_needs_a_restart_is_named(fleet: Fleet, redis_server: RedisServer) -> None:
    async with SimulatedPool(latency=0) as pool, fleet(pool.url) as daemon:
        daemon.configure(settings(redis_server.url, pool.url, transport={"lease_ttl": "9s"}))
        await reloaded(daemon)
        (event,) = daemon.events("restart_needed")
        assert event["path"] == "transport.lease_ttl"


async def test_another_first_queue_needs_a_restart_where_gates_are_shared(
    fleet: Fleet, redis_server: RedisServer
) -> None:
    """Replicas that share a gate find each other by it."""
    gate = {"gate": {"type": "local-max-concurrency", "limit": 4, "shared": True}}
    async with SimulatedPool(latency=0) as pool:
        first = {"queue_name": "first", "igw_base_url": pool.url, **gate}
        other = {"queue_name": "other", "igw_base_url": pool.url, **gate}
        async with fleet(pool.url, transport={"queues": [first, other]}) as daemon:
            swapped = {"queues": [other, first]}
            daemon.configure(settings(redis_server.url, pool.url, transport=swapped))
            await reloaded(daemon)
            (event,) = daemon.events("restart_needed")
            assert event["path"] == "transport.queues.0.queue_name"
