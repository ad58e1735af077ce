"""Three teams on one pool, with concurrency quotas of 2, 2 and 1 and a tier each."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from redis.asyncio import Redis

from async_processor.producer import Handle, Producer, Submission
from async_processor.redis_io.keys import quota_keys
from async_processor.testing.daemons import DaemonProcess
from async_processor.testing.eventually import eventually, until
from async_processor.testing.gateway import Arrival, Gateway
from async_processor.testing.metrics_page import MetricsPage
from async_processor.testing.servers import RedisServer
from async_processor.wire.result import ErrorCode, Result

Fleet = Callable[..., DaemonProcess]

TEAMS = {"red": ("interactive", 2), "green": ("async", 2), "blue": ("batch", 1)}
RESERVED = {"0", "1", "2"}


def teams(gateway: str, **changes: Any) -> dict[str, Any]:
    """A queue per team; what its quota covers is reserved, the surplus is overflow."""
    quota = {"type": "redis-quota", "attribute": "userid", "mode": "concurrency", "window": "10s"}
    queues = [
        {
            "queue_name": team,
            "igw_base_url": gateway,
            "labels": {"tier": tier},
            "gate": {**quota, "limit": limit, "gating_mode": "classifying", "prefix": "q:"},
        }
        for team, (tier, limit) in TEAMS.items()
    ]
    return {
        "transport": {"queues": queues},
        "merge_policy": {"type": "tier-priority", "priority_header": "x-lane"},
        **changes,
    }


def team(arrival: Arrival) -> str:
    return str(arrival.payload["user"]).partition("-")[0]


def reserved(arrivals: Iterable[Arrival]) -> list[Arrival]:
    return [arrival for arrival in arrivals if arrival.headers["x-lane"] in RESERVED]


async def submit(redis: RedisServer, counts: Mapping[str, int]) -> dict[str, list[Handle]]:
    handles: dict[str, list[Handle]] = {}
    for name, count in counts.items():
        async with Producer(redis.url, queue=name) as producer:
            handles[name] = await producer.submit_many(
                [
                    Submission(
                        id=f"{name}-{number}",
                        payload={"prompt": "hi", "user": f"{name}-{number}"},
                        metadata={"userid": name},
                        deadline="10m",
                    )
                    for number in range(count)
                ],
                mailbox=True,
            )
    return handles


async def results(redis: RedisServer, handles: Mapping[str, list[Handle]]) -> list[Result]:
    async with Producer(redis.url) as producer:
        each = (handle for own in handles.values() for handle in own)
        return list(await asyncio.gather(*(producer.result(one, 60) for one in each)))


async def test_steady_everything_is_reserved(fleet: Fleet, redis_server: RedisServer) -> None:
    async with Gateway(hold=True) as gateway, fleet(gateway.url, workers=8, **teams(gateway.url)):
        handles = await submit(redis_server, {"red": 2, "green": 2, "blue": 1})
        await until(lambda: len(gateway.open) == 5)
        lanes = Counter((team(each), each.headers["x-lane"]) for each in gateway.open)
        assert lanes == {("red", "0"): 2, ("green", "1"): 2, ("blue", "2"): 1}
        assert all(
            each.headers["x-llm-d-inference-fairness-id"] == team(each) for each in gateway.open
        )
        for each in gateway.open:
            each.answer()
        assert all(each.succeeded for each in await results(redis_server, handles))


async def test_overflow_nothing_is_dropped_and_the_surplus_comes_after_every_reserved_request(
    fleet: Fleet, redis_server: RedisServer
) -> None:
    """Fewer workers than the quotas cover, and each answer only when a reserved request is known to
    stand ready for the slot."""
    counts = {"red": 8, "green": 12, "blue": 4}
    async with Gateway(hold=True) as gateway:
        arrangement = teams(gateway.url)
        other = {"queue_name": "other", "igw_base_url": gateway.url}
        arrangement["transport"]["queues"].append(other)
        async with fleet(gateway.url, workers=3, **arrangement) as daemon:
            handles = await submit(redis_server, {"other": 3})
            await until(lambda: len(gateway.open) == 3)
            handles |= await submit(redis_server, counts)
            while sum(coverable(gateway, counts).values()) == 5:
                await eventually(partial(_more_is_reserved_than_runs, redis_server, gateway))
                await daemon.status()  # the daemon has heard of it by now
                seen = len(gateway.arrivals)
                gateway.open[0].answer()
                await until(partial(_arrived, gateway, seen + 1))
            compared = gateway.arrivals[3:]
            await _answer_the_rest(gateway, 3 + sum(counts.values()))
            found = await results(redis_server, handles)
    assert all(each.succeeded for each in found)
    assert len(compared) >= counts["red"]
    assert reserved(compared) == compared


def coverable(gateway: Gateway, counts: Mapping[str, int]) -> Mapping[str, int]:
    """How many requests of each team its quota may cover at once."""
    done = Counter(team(each) for each in gateway.arrivals if not each.open)
    return {name: min(limit, counts[name] - done[name]) for name, (_, limit) in TEAMS.items()}


async def _more_is_reserved_than_runs(redis: RedisServer, gateway: Gateway) -> bool:
    """By two at least: the slot of the call that was answered last may not be free yet."""
    keys = quota_keys("q:", "concurrency", "userid")
    async with Redis.from_url(redis.url, protocol=2) as client:
        taken = sum([await client.zcard(keys.slots(name)) for name in TEAMS])
    return bool(taken >= 2 + len(reserved(gateway.open)))


def _arrived(gateway: Gateway, count: int) -> bool:
    return len(gateway.arrivals) >= count


async def _answer_the_rest(gateway: Gateway, count: int) -> None:
    while len(gateway.arrivals) < count or gateway.open:
        await until(lambda: bool(gateway.open))
        first = gateway.open[0]
        first.answer()
        await until(partial(_ended, first))


def _ended(arrival: Arrival) -> bool:
    return not arrival.open


async def test_overflow_uses_what_the_quotas_leave(fleet: Fleet, redis_server: RedisServer) -> None:
    async with Gateway(hold=True) as gateway, fleet(gateway.url, workers=8, **teams(gateway.url)):
        handles = await submit(redis_server, {"blue": 8})
        await until(lambda: len(gateway.open) == 8)
        assert Counter(each.headers["x-lane"] for each in gateway.open) == {"2": 1, "5": 7}
        for each in gateway.open:
            each.answer()
        assert all(each.succeeded for each in await results(redis_server, handles))


async def test_saturation_reserved_waits_interactive_surplus_is_dropped_the_rest_goes_back(
    fleet: Fleet, redis_server: RedisServer
) -> None:
    """The three-way verdict of a saturated pool, and that another pool goes on meanwhile."""
    async with MetricsPage("saturation 1.0\n") as page, Gateway() as gateway:
        admission = {
            "type": "tier-priority-admission",
            "saturation_gate": "endpoint-scrape",
            "saturation_gate_params": {
                "url": page.url,
                "metric": "saturation",
                "baseline": 0.2,
            },
        }
        arrangement = teams(gateway.url)
        other = {"queue_name": "other", "igw_base_url": gateway.url, "worker_pool_id": "other"}
        arrangement["transport"]["queues"].append(other)
        arrangement["worker_pools"] = [
            {"id": "default", "workers": 8, "gate": admission},
            {"id": "other", "workers": 2},
        ]
        async with fleet(gateway.url, **arrangement) as daemon:
            handles = await submit(redis_server, {"red": 3, "green": 3, "other": 2})
            assert all(
                each.succeeded
                for each in await results(redis_server, {"other": handles.pop("other")})
            )
            await until(lambda: page.asked > 0)

            async def two_of_red_and_green_wait_and_reds_third_is_out() -> bool:
                waiting = await daemon.metric("gate_waiting_requests")
                dropped = await daemon.metric("gate_decisions_total", reason="dropped")
                return (waiting, dropped) == (4, 1)

            await eventually(two_of_red_and_green_wait_and_reds_third_is_out)
            assert {team(each) for each in gateway.arrivals} == {"other"}
            page.text = "saturation 0.0\n"
            found = await results(redis_server, handles)
    dropped = [each for each in found if each.error_code is ErrorCode.GATE_DROPPED]
    assert len(dropped) == 1
    assert dropped[0].id.startswith("red-")
    assert dropped[0].payload == '{"error": "Too Many Requests", "code": 429}'
    assert sum(each.succeeded for each in found) == 5
