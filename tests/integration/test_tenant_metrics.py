"""What metrics tell of tenants, on a real Redis and a real gateway: how much of their quotas they
use, by all replicas together, and whose requests a pool starts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from async_processor.admission.base import Continue, Gate
from async_processor.admission.quota.ledger import AT_ONCE
from async_processor.config.load import validated
from async_processor.config.settings import Settings
from async_processor.daemon.build import Parts, build
from async_processor.daemon.quota_gauges import QuotaGauges
from async_processor.daemon.workshop import Workshop
from async_processor.redis_io.connect import open_client
from async_processor.telemetry.metrics import Metrics
from async_processor.testing.candidates import candidate
from async_processor.testing.eventually import until
from async_processor.testing.gateway import Gateway
from async_processor.testing.in_memory import in_memory
from async_processor.testing.servers import RedisServer
from async_processor.transport.memory import MemoryTransport
from async_processor.transport.settings import MemorySettings

SLOTS = {"mode": "concurrency", "limits": {"a": 5, "b": 3, "*": 1}}
NUMBERS = count(1)
"""Of requests: the same one again would be no second start."""
FAIR = {"type": "weighted-fair", "weights": {"a": 3, "b": 1}}


def configuration(url: str, **parameters: Any) -> Settings:
    gate = {"type": "redis-quota", "url": url, "missing_attribute": "allow", **parameters}
    queue = {"queue_name": "q", "igw_base_url": "http://gw", "gate": gate}
    return validated({"transport": {"type": "memory", "queues": [queue]}}, {})


class Replica:
    """The gates of one replica, and what reads their quotas."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        shared = parts.shared
        self.gauges = QuotaGauges(
            parts.topology, shared.gates, shared.metrics, shared.clock, interval=0.05
        )

    @property
    def gate(self) -> Gate:
        (route,) = self._parts.topology.routes
        return route.gate

    async def start(self, tenant: str) -> None:
        request = candidate(f"r-{next(NUMBERS)}", metadata={"userid": tenant})
        verdict = await self.gate.admit(request)
        assert isinstance(verdict, Continue), verdict

    async def reload(self, settings: Settings) -> None:
        await self._parts.topology.apply(Workshop(settings, self._parts.shared))

    async def shown(self) -> tuple[Mapping[str, float], Mapping[str, float]]:
        """What tenants use, and their limits, as they are read now."""
        await self.gauges.publish()
        metrics = self._parts.shared.metrics
        return by_tenant(metrics, "quota_in_use"), by_tenant(metrics, "quota_limit")


def by_tenant(metrics: Metrics, name: str) -> Mapping[str, float]:
    return {
        sample.labels["tenant"]: sample.value
        for family in text_string_to_metric_families(metrics.exposition().decode())
        for sample in family.samples
        if sample.name == f"llm_d_async_async_{name}"
    }


@asynccontextmanager
async def replica(settings: Settings) -> AsyncIterator[Replica]:
    parts = build(settings, transport=MemoryTransport(MemorySettings()))
    async with AsyncExitStack() as stack:
        for service in (parts.shared.gates.redis, parts.topology):
            await service.start()
            stack.push_async_callback(service.stop)
        made = Replica(parts)
        await until(lambda: made.gate.state().available)
        yield made


async def calls_of_scripts(url: str) -> int:
    client = open_client(url)
    try:
        told = (await client.execute("INFO", "commandstats")).decode()
    finally:
        await client.close()
    lines = [line for line in told.splitlines() if line.startswith("cmdstat_evalsha:")]
    return sum(int(line.partition("calls=")[2].partition(",")[0]) for line in lines)


@pytest.mark.parametrize("mode", ["concurrency", "rate-limit"])
async def test_each_replica_shows_what_all_use(redis_url: str, mode: str) -> None:
    settings = configuration(redis_url, **SLOTS | {"mode": mode})
    async with replica(settings) as one, replica(settings) as other:
        for _ in range(2):
            await one.start("a")
        await other.start("a")
        await other.start("somebody")
        for each in (one, other):
            assert await each.shown() == ({"a": 3, "b": 0}, {"a": 5, "b": 3})


async def test_all_named_tenants_are_read_in_one_call_and_nothing_is_written(
    redis_url: str,
) -> None:
    tenants = {f"t-{number}": 2 for number in range(100)}
    settings = configuration(redis_url, mode="concurrency", limits=tenants)
    async with replica(settings) as alone:
        await alone.start("t-7")
        client = open_client(redis_url)
        keys = await client.execute("KEYS", "*")
        before = await calls_of_scripts(redis_url)
        in_use, _ = await alone.shown()
        assert await calls_of_scripts(redis_url) == before + 1
        assert await client.execute("KEYS", "*") == keys
        await client.close()
    assert in_use == dict.fromkeys(tenants, 0) | {"t-7": 1}


async def test_many_named_tenants_are_read_in_several_calls_that_hold_up_nobody(
    redis_url: str,
) -> None:
    tenants = {f"t-{number}": 2 for number in range(2 * AT_ONCE + 1)}
    async with replica(configuration(redis_url, mode="concurrency", limits=tenants)) as alone:
        await alone.start(f"t-{2 * AT_ONCE}")
        before = await calls_of_scripts(redis_url)
        in_use, _ = await alone.shown()
        assert await calls_of_scripts(redis_url) == before + 3
    assert in_use == dict.fromkeys(tenants, 0) | {f"t-{2 * AT_ONCE}": 1}


async def test_where_nobody_is_named_nothing_is_read(redis_url: str) -> None:
    async with replica(configuration(redis_url, limit=2, limits={"team-*": 3})) as alone:
        before = await calls_of_scripts(redis_url)
        assert await alone.shown() == ({}, {})
        assert await calls_of_scripts(redis_url) == before


async def test_what_cannot_be_read_is_not_shown_and_comes_back(redis_server: RedisServer) -> None:
    async with replica(configuration(redis_server.url, **SLOTS)) as alone:
        await alone.start("a")
        assert await alone.shown() == ({"a": 1, "b": 0}, {"a": 5, "b": 3})
        redis_server.stop()
        assert await alone.shown() == ({}, {"a": 5, "b": 3})
        redis_server.start()
        assert await alone.shown() == ({"a": 0, "b": 0}, {"a": 5, "b": 3})


async def test_a_count_that_cannot_be_read_closes_no_gate(redis_url: str) -> None:
    async with replica(configuration(redis_url, **SLOTS)) as alone:
        client = open_client(redis_url)
        await client.execute("SET", "quota:{concurrency:userid}:slots:b", "somebody else's")
        assert await alone.shown() == ({}, {"a": 5, "b": 3})
        assert alone.gate.state().available
        await alone.start("a")
        await client.close()


async def test_a_reload_changes_limits_and_takes_a_quota_away(redis_url: str) -> None:
    async with replica(configuration(redis_url, **SLOTS)) as alone:
        await alone.start("a")
        await alone.reload(configuration(redis_url, mode="concurrency", limits={"a": 1, "c": 2}))
        assert await alone.shown() == ({"a": 1, "c": 0}, {"a": 1, "c": 2})
        await alone.reload(configuration(redis_url, limit=2))
        assert await alone.shown() == ({}, {})


async def test_it_is_read_at_every_interval(redis_url: str) -> None:
    async with replica(configuration(redis_url, **SLOTS)) as alone:
        running = asyncio.create_task(alone.gauges.run())
        metrics = alone._parts.shared.metrics
        await until(lambda: by_tenant(metrics, "quota_in_use") == {"a": 0, "b": 0})
        await alone.start("a")
        await until(lambda: by_tenant(metrics, "quota_in_use") == {"a": 1, "b": 0})
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_requests_count_for_their_tenant_when_they_first_start() -> None:
    async with Gateway(failures=2) as gateway, in_memory(gateway.url, merge_policy=FAIR) as running:
        metrics = running.parts.shared.metrics
        assert by_tenant(metrics, "tenant_started_requests_total") == {"a": 0, "b": 0, "*": 0}
        for number, tenant in enumerate(["a", "a", "b", "somebody", "*", ""]):
            await running.submit(f"r-{number}", metadata={"userid": tenant})
        await running.results(6)
        assert len(gateway.arrivals) == 8, "two were sent twice"
        assert by_tenant(metrics, "tenant_started_requests_total") == {"a": 2, "b": 1, "*": 3}


async def test_where_nobody_is_named_nothing_counts() -> None:
    async with Gateway() as gateway, in_memory(gateway.url) as running:
        await running.submit("r", metadata={"userid": "a"})
        await running.results(1)
        assert not by_tenant(running.parts.shared.metrics, "tenant_started_requests_total")


async def test_a_tenant_that_a_reload_names_counts_from_then_on() -> None:
    async with Gateway() as gateway, in_memory(gateway.url) as running:
        parts = running.parts
        document = parts.topology.settings.model_dump(mode="json")
        named = validated({**document, "merge_policy": FAIR}, {})
        (pool,) = parts.topology.pools
        await parts.topology.apply(Workshop(named, parts.shared))
        await running.submit("r-1", metadata={"userid": "a"})
        await running.results(1)
        counted = {"a": 1, "b": 0, "*": 0}
        assert by_tenant(parts.shared.metrics, "tenant_started_requests_total") == counted
        await parts.topology.apply(Workshop(validated(document, {}), parts.shared))
        assert pool.tenants is None
