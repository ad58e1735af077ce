"""`weighted-fair` and queues in turns, with the real daemon: who gets the slots, call by call."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import pytest
from redis.asyncio import Redis

from async_processor.producer import Producer, Submission
from async_processor.testing.daemons import SHORT_LEASES, DaemonProcess
from async_processor.testing.eventually import eventually, until
from async_processor.testing.gateway import Arrival, Gateway
from async_processor.testing.servers import RedisServer

Fleet = Callable[..., DaemonProcess]

WORKERS = 8
COMPARED = 100
"""Calls, after those that started while the lanes were filling."""

WEIGHTS = {"heavy": 3.0, "light": 1.0}
FAIR = {"type": "weighted-fair", "weights": WEIGHTS}


def arrangement(gateway: str, queues: Iterable[str], policy: Mapping[str, Any]) -> dict[str, Any]:
    """Those queues, in one pool."""
    entries = [{"queue_name": name, "igw_base_url": gateway} for name in queues]
    return {"workers": WORKERS, "transport": {"queues": entries}, "merge_policy": policy}


async def submit(redis: RedisServer, queue: str, tenants: Sequence[str], **payload: Any) -> None:
    """Requests of these tenants, in this order, with deadlines in this order."""
    async with Producer(redis.url, queue=queue) as producer:
        await producer.submit_many(
            [
                Submission(
                    id=f"{queue}-{number}",
                    payload={
                        "prompt": "hi",
                        "user": f"{queue} {tenant}",
                        "max_tokens": payload.get(tenant, 100),
                    },
                    metadata={"userid": tenant},
                    deadline="30m",
                )
                for number, tenant in enumerate(tenants)
            ]
        )


def user(arrival: Arrival) -> str:
    return str(arrival.payload["user"])


def tenant(arrival: Arrival) -> str:
    return user(arrival).split()[1]


async def call_by_call(gateway: Gateway, daemon: DaemonProcess, count: int) -> Sequence[Arrival]:
    """Answer the oldest call when others stand in the lanes, until so many more have come."""
    await until(lambda: len(gateway.arrivals) >= WORKERS)
    start = len(gateway.arrivals)
    while len(gateway.arrivals) < start + count:
        await eventually(partial(_lanes_are_filled, daemon))
        seen = len(gateway.arrivals)
        gateway.open[0].answer()
        await until(lambda seen=seen: len(gateway.arrivals) > seen)  # type: ignore[misc]
    return gateway.arrivals[start:]


async def _lanes_are_filled(daemon: DaemonProcess) -> bool:
    return await daemon.metric("queue_depth") >= WORKERS / 2


@pytest.mark.parametrize("backlogs", ["one queue", "two queues"])
async def test_shares_are_those_of_the_weights(
    fleet: Fleet, redis_server: RedisServer, backlogs: str
) -> None:
    names = ["q"] if backlogs == "one queue" else list(WEIGHTS)
    async with Gateway(hold=True) as gateway:
        daemon = fleet(gateway.url, **arrangement(gateway.url, names, FAIR))
        for name in names:
            mixed = list(WEIGHTS) * 200 if name == "q" else [name] * 200
            await submit(redis_server, name, mixed)
        async with daemon:
            compared = await call_by_call(gateway, daemon, COMPARED)
    assert Counter(map(tenant, compared))["heavy"] == pytest.approx(75, abs=5)


async def test_shares_in_tokens(fleet: Fleet, redis_server: RedisServer) -> None:
    """Three times the tokens in requests of half the size: six requests for each of the other's."""
    policy = {**FAIR, "cost": "tokens"}
    async with Gateway(hold=True) as gateway:
        daemon = fleet(gateway.url, **arrangement(gateway.url, ["q"], policy))
        await submit(redis_server, "q", list(WEIGHTS) * 200, heavy=10_000, light=20_000)
        async with daemon:
            compared = await call_by_call(gateway, daemon, COMPARED)
    assert Counter(map(tenant, compared))["heavy"] == pytest.approx(600 / 7, abs=5)


async def test_whoever_comes_late_gets_its_share_from_then_on(
    fleet: Fleet, redis_server: RedisServer
) -> None:
    async with Gateway(hold=True) as gateway:
        daemon = fleet(gateway.url, **arrangement(gateway.url, WEIGHTS, FAIR))
        await submit(redis_server, "light", ["light"] * 300)
        async with daemon:
            await call_by_call(gateway, daemon, 20)
            await submit(redis_server, "heavy", ["heavy"] * 200)
            await eventually(partial(_waits, daemon, "heavy"))
            compared = await call_by_call(gateway, daemon, COMPARED)
    assert Counter(map(tenant, compared))["heavy"] == pytest.approx(75, abs=5)


async def _waits(daemon: DaemonProcess, queue: str) -> bool:
    return await daemon.metric("queue_depth", queue_name=queue) > 0


async def test_a_tenant_of_tiny_weight_does_not_starve(
    fleet: Fleet, redis_server: RedisServer
) -> None:
    weights = {"heavy": 1e6, "light": 1e-3}
    policy = {"type": "weighted-fair", "weights": weights, "max_age": "500ms"}
    async with Gateway(hold=True) as gateway:
        daemon = fleet(gateway.url, **arrangement(gateway.url, weights, policy))
        await submit(redis_server, "heavy", ["heavy"] * 600)
        async with daemon:
            await call_by_call(gateway, daemon, 1)
            await submit(redis_server, "light", ["light"])
            await eventually(partial(_waits, daemon, "light"))
            while "light" not in map(tenant, gateway.arrivals):
                await call_by_call(gateway, daemon, 1)
            assert len(gateway.arrivals) < 600


async def test_queues_of_a_lane_take_turns(fleet: Fleet, redis_server: RedisServer) -> None:
    names = ["q1", "q2", "q3"]
    async with Gateway(hold=True) as gateway:
        daemon = fleet(gateway.url, **arrangement(gateway.url, names, {"type": "tier-priority"}))
        for name in names:
            await submit(redis_server, name, ["t"] * 100)
        async with daemon:
            compared = await call_by_call(gateway, daemon, 90)
    turns = Counter(map(user, compared))
    assert [turns[f"{name} t"] for name in names] == pytest.approx([30, 30, 30], abs=3)


async def test_a_backlog_of_one_tenant_is_not_put_aside(
    fleet: Fleet, redis_server: RedisServer
) -> None:
    async with Gateway(hold=True) as gateway:
        daemon = fleet(gateway.url, **arrangement(gateway.url, ["q"], FAIR))
        await submit(redis_server, "q", ["heavy"] * 2000)
        async with daemon:
            await call_by_call(gateway, daemon, 20)
            (queue,) = (await daemon.status())["queues"]
    assert queue["parked"] <= 500


async def test_nothing_is_lost_or_doubled_when_it_is_killed(
    fleet: Fleet, redis_server: RedisServer
) -> None:
    count = 300
    async with Gateway() as gateway:
        settings = arrangement(gateway.url, ["q"], FAIR)
        settings["transport"] |= SHORT_LEASES
        daemon = fleet(gateway.url, **settings)
        await submit(redis_server, "q", ["light", "light", "heavy"] * (count // 3))
        async with daemon:
            await until(lambda: len(gateway.arrivals) >= 100)
            await daemon.kill()
            await daemon.start()
            async with Redis.from_url(redis_server.url, protocol=2) as client:
                await eventually(partial(_has, client, count))
                await daemon.terminate()
                found = await client.lrange("result-list", 0, -1)
    assert sorted(json.loads(each)["id"] for each in found) == sorted(
        f"q-{number}" for number in range(count)
    )


async def _has(client: Redis, count: int) -> bool:
    return bool(await client.llen("result-list") >= count)
