"""A hundred configurations one after the other, while requests flow: what holds all the time."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from async_processor.config.load import validated
from async_processor.config.settings import Settings
from async_processor.daemon.build import build
from async_processor.daemon.daemon import Daemon
from async_processor.daemon.reload import Reloader
from async_processor.daemon.workshop import Workshop
from async_processor.dispatch.route import Route
from async_processor.listeners import Listeners
from async_processor.testing.eventually import eventually, until
from async_processor.testing.gateway import Arrival, Gateway
from async_processor.testing.memory_probe import MemoryProbe, memory_probe
from async_processor.testing.stage import submit
from async_processor.transport.memory import MemoryTransport
from async_processor.transport.settings import MemorySettings
from async_processor.wire import result as results

LIMIT = 3
LIMITED = {"type": "local-max-concurrency", "limit": LIMIT}
OTHER_LIMIT = {"type": "local-max-concurrency", "limit": 5}
NOBODY = "http://127.0.0.1:9"
NO_REDIS = "redis://127.0.0.1:9"
PROMETHEUS = {"type": "prometheus-query", "query": "up", "fallback": 1.0}
OPEN = (
    {"type": "constant"},
    {"type": "endpoint-scrape", "url": f"{NOBODY}/metrics", "metric": "none", "fallback": 1.0},
    PROMETHEUS,
    {"type": "wait-on-refuse", "gate": OTHER_LIMIT},
    {"type": "composite", "gates": [PROMETHEUS, OTHER_LIMIT]},
)
CLOSED = (
    {"type": "redis", "url": NO_REDIS},
    {"type": "redis-quota", "url": NO_REDIS, "mode": "concurrency", "limit": 2},
    {"type": "redis-quota", "url": NO_REDIS, "limit": 2},
    {"type": "redis-leased-rate", "url": NO_REDIS, "control_key": "control"},
)
POLICIES = ("random-robin", "tier-priority", "weighted-fair")


class Stage:
    """A running daemon, its broker, and a gateway whose calls end when told to."""

    def __init__(self, probe: MemoryProbe, gateway: Gateway) -> None:
        self.probe = probe
        self.gateway = gateway
        self.settings = self.configuration()
        transport = MemoryTransport(MemorySettings(lease_ttl=30.0), probe.broker)
        parts = build(self.settings, transport=transport)
        self.topology = parts.topology
        self.metrics = parts.shared.metrics
        self._readiness = parts.shared.readiness
        self._reloader = Reloader(lambda: self.settings, parts.topology, parts.shared)
        self.running = asyncio.create_task(Daemon(parts).run())
        self.submitted = Counter[str]()

    def configuration(
        self,
        *,
        workers: int = 4,
        queues: Mapping[str, Mapping[str, Any]] | None = None,
        pool: Mapping[str, Any] | None = None,
        others: Sequence[Mapping[str, Any]] = ({"id": "other"},),
        policy: str = "random-robin",
        prometheus: str = NOBODY,
    ) -> Settings:
        """By default one queue, `limited`; its gate has a limit."""
        queues = {"limited": {"gate": LIMITED}, **(queues or {})}
        names = [
            {"queue_name": name, "igw_base_url": self.gateway.url, **fields}
            for name, fields in queues.items()
        ]
        pools = [{"id": "default", "workers": workers, **(pool or {})}, *others]
        return validated(
            {
                "transport": {"type": "memory", "lease_ttl": 30, "queues": names},
                "worker_pools": pools,
                "merge_policy": {"type": policy},
                "prometheus": {"url": prometheus},
                "server": {"bind": "127.0.0.1", "health_port": 0, "metrics_port": 0},
            },
            {},
        )

    async def serving(self) -> None:
        await until(lambda: self.running.done() or self._readiness.serving)

    async def reload(self, **changes: Any) -> None:
        self.settings = self.configuration(**changes)
        await self._reloader.reload()
        assert self.topology.settings is self.settings, "the reload failed"

    async def reload_in_vain(self, **changes: Any) -> None:
        before = self.topology.settings
        self.settings = self.configuration(**changes)
        await self._reloader.reload()
        assert self.topology.settings is before

    def shown(self, label: str) -> set[str]:
        """The names of the series with a label, without their common prefix."""
        lines = self.metrics.exposition().decode().splitlines()
        return {
            line.partition("{")[0].removeprefix("llm_d_async_async_")
            for line in lines
            if label in line
        }

    async def submit(self, queue: str) -> None:
        name = f"{queue}-{len(self.submitted)}"
        self.submitted[name] += 1
        await submit(self.probe, name, queue=queue, payload={"prompt": name})

    def open(self, queue: str) -> Sequence[Arrival]:
        return [each for each in self.gateway.open if each.payload["prompt"].startswith(queue)]

    def called(self) -> Counter[str]:
        return Counter(each.payload["prompt"] for each in self.gateway.arrivals)

    def route(self, queue: str) -> Route:
        return next(route for route in self.topology.routes if route.queue.queue_name == queue)

    async def settled(self) -> None:
        """Answer every call until every request has its one result."""

        async def all_there() -> bool:
            for arrival in self.gateway.open:
                arrival.answer()
            return len(await self.probe.results("result-list")) >= len(self.submitted)

        await eventually(all_there)
        found = [results.decode(body) for body in await self.probe.results("result-list")]
        assert Counter(each.id for each in found) == self.submitted
        assert {each.status_code for each in found} == {200}

    async def stop(self) -> None:
        if not self.running.done():
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0)
            os.kill(os.getpid(), signal.SIGTERM)
        await self.running


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    async with memory_probe() as probe, Gateway(hold=True) as gateway:
        running = Stage(probe, gateway)
        await running.serving()
        try:
            yield running
        finally:
            await running.stop()


def listening() -> int:
    """How many listen to anything in this process."""
    gc.collect()
    return sum(len(each) for each in gc.get_objects() if isinstance(each, Listeners))


def side_tasks() -> Counter[str]:
    """By their names, which those without one do not have."""
    names = [task.get_name() for task in asyncio.all_tasks() if not task.done()]
    return Counter(name for name in names if not name.startswith("Task-"))


async def test_a_hundred_reloads_lose_nothing_exceed_nothing_and_leave_nothing_behind() -> None:
    random.seed(7)
    async with stage() as running:
        before = listening(), side_tasks()
        for number in range(100):
            await running.submit("limited")
            await running.submit("coming-and-going")
            coming: Mapping[str, Any] = {
                "coming-and-going": {
                    "gate": random.choice(OPEN + CLOSED),
                    "worker_pool_id": random.choice(["default", "other"]),
                }
            }
            await running.reload(
                workers=random.randint(1, 8),
                queues=coming if number % 3 else {},
                pool={"gate": random.choice(OPEN)} if number % 2 else {},
                policy=POLICIES[number // 10 % len(POLICIES)],
                prometheus=f"{NOBODY}/{number // 7}",
            )
            for _ in range(random.randint(0, 20)):
                await asyncio.sleep(0.001)
            assert len(running.open("limited")) <= LIMIT
            still_open = running.gateway.open
            for arrival in random.sample(still_open, len(still_open) // 2):
                arrival.answer()
        await running.reload(queues={"coming-and-going": {}})
        await running.settled()
        assert running.called() == running.submitted, "a call was cut off and repeated"
        await running.reload()
        await until(lambda: not len(running.topology.retirement))
        await until(lambda: side_tasks() == before[1])
        await until(lambda: listening() == before[0])


async def test_workers_that_change_leave_the_gate_of_a_queue_as_it_is() -> None:
    async with stage() as running:
        gate = running.route("limited").gate
        for _ in range(10):
            await running.submit("limited")
        await until(lambda: len(running.open("limited")) == LIMIT)
        for workers in (8, 5, 8):
            await running.reload(workers=workers)
            assert running.route("limited").gate is gate
        running.open("limited")[0].answer()
        await until(lambda: len(running.gateway.arrivals) == LIMIT + 1)
        assert len(running.open("limited")) == LIMIT
        await running.settled()


async def test_a_limit_that_changes_counts_what_runs_already() -> None:
    def limit(number: int) -> Mapping[str, Any]:
        return {"limited": {"gate": LIMITED | {"limit": number}}}

    async with stage() as running:
        for _ in range(12):
            await running.submit("limited")
        await until(lambda: len(running.gateway.open) == LIMIT)
        await running.reload(workers=9, queues=limit(5))
        await until(lambda: len(running.gateway.open) == 5)
        await running.reload(workers=9, queues=limit(2))
        for arrival in running.gateway.open[:4]:
            arrival.answer()
        await until(lambda: len(running.gateway.arrivals) == 6)
        assert len(running.gateway.open) == 2
        await running.reload(workers=9, queues=limit(5))
        await running.settled()
        assert running.gateway.most_open == 5
        assert running.called() == running.submitted


async def test_a_gate_that_is_replaced_is_stopped_when_the_last_of_its_requests_has_ended() -> None:
    queue = {"asking": {"gate": PROMETHEUS}}
    async with stage() as running:
        await running.reload(queues=queue)
        await running.submit("asking")
        await until(lambda: len(running.gateway.open) == 1)
        assert side_tasks()["sensor up"] == 1
        await running.reload()
        assert (len(running.topology.retirement), side_tasks()["sensor up"]) == (1, 1)
        await running.settled()
        await until(lambda: not len(running.topology.retirement))
        await until(lambda: not side_tasks()["sensor up"])


async def test_a_sensor_that_the_next_configuration_uses_goes_on() -> None:
    async with stage() as running:
        await running.reload(queues={"asking": {"gate": PROMETHEUS}})
        (sensor,) = [task for task in asyncio.all_tasks() if task.get_name() == "sensor up"]
        await running.reload(queues={"asking": {"gate": PROMETHEUS | {"fallback": 0.5}}})
        await until(lambda: not len(running.topology.retirement))
        assert not sensor.done()
        assert side_tasks()["sensor up"] == 1


async def test_a_replaced_gate_does_not_wait_for_requests_of_other_queues() -> None:
    async with stage() as running:
        await running.reload(queues={"asking": {"gate": PROMETHEUS}})
        await running.submit("limited")
        await until(lambda: len(running.gateway.open) == 1)
        await running.reload()
        await until(lambda: not len(running.topology.retirement))
        await until(lambda: not side_tasks()["sensor up"])
        assert len(running.gateway.open) == 1
        await running.settled()


GAUGES = {
    "queue_depth",
    "inflight_requests",
    "gate_waiting_requests",
    "broker_backlog",
    "broker_backlog_source_available",
    "dispatch_budget",
    "gate_metric_source_available",
}


async def test_the_gauges_of_what_is_gone_go_with_its_last_request_and_its_counters_stay() -> None:
    queue = {"leaving": {"gate": PROMETHEUS, "worker_pool_id": "other"}}
    of_queue, of_pool = 'pool_name="other",queue_id="leaving"', '{pool_name="other"}'
    async with stage() as running:
        await running.reload(queues=queue)
        await running.submit("leaving")
        await until(lambda: len(running.gateway.open) == 1)
        await until(lambda: running.shown(of_queue) >= GAUGES)
        assert running.shown(of_pool) == {"pool_worker_limit"}
        await running.reload(others=())
        await until(lambda: running.shown(of_queue) & GAUGES == {"inflight_requests"})
        assert not running.shown(of_pool)
        await running.settled()
        await until(lambda: not running.shown(of_queue) & GAUGES)
        assert running.shown(of_queue) >= {"request_total", "successful_requests_total"}
        await running.reload(queues=queue)
        await until(lambda: running.shown(of_queue) >= GAUGES)
        await running.reload(queues={"leaving": {"gate": PROMETHEUS}})
        await until(lambda: not running.shown(of_queue) & GAUGES)
        await until(lambda: running.shown('pool_name="default",queue_id="leaving"') >= GAUGES)


async def test_a_pool_that_comes_back_counts_what_still_runs_of_it() -> None:
    there: Mapping[str, Any] = {
        "queues": {"returning": {"worker_pool_id": "other"}},
        "others": [{"id": "other", "workers": 2}],
    }
    async with stage() as running:
        await running.reload(**there)
        for _ in range(6):
            await running.submit("returning")
        await until(lambda: len(running.gateway.open) == 2)
        await running.reload()
        await running.reload(others=())
        await running.reload(**there)
        running.gateway.open[0].answer()
        await until(lambda: len(running.gateway.arrivals) == 3)
        await running.settled()
        assert running.gateway.most_open == 2
        assert running.called() == running.submitted


async def test_a_reload_that_fails_midway_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a plugin that cannot be made")

    async with stage() as running:
        before = running.route("limited"), side_tasks()
        with monkeypatch.context() as patched:
            patched.setattr(Workshop, "route", broken)
            changed = {"limited": {"gate": PROMETHEUS}, "more": {"gate": CLOSED[0]}}
            await running.reload_in_vain(workers=1, queues=changed, pool={"gate": OTHER_LIMIT})
        assert running.route("limited") is before[0]
        await until(lambda: side_tasks() == before[1])
        await running.submit("limited")
        await running.settled()
        await running.reload(workers=1, queues=changed)
