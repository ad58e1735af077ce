"""Three queues that go by one metrics page, in a real daemon: together they start what a reading
allows, and when it is spent the status says so."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import httpx
import pytest

from async_processor.admission import build as gates
from async_processor.config.load import validated
from async_processor.daemon.build import Parts, build
from async_processor.daemon.daemon import Daemon
from async_processor.sim.pool import SimulatedPool
from async_processor.testing.eventually import eventually, until
from async_processor.testing.memory_probe import MemoryProbe, memory_probe
from async_processor.testing.messages import message
from async_processor.testing.metrics_page import MetricsPage
from async_processor.transport.memory import MemoryTransport
from async_processor.transport.settings import MemorySettings
from async_processor.wire.envelope import score

QUEUES: Final = ("a", "b", "c")
EACH: Final = 12
WORKERS: Final = 16
PER_READING: Final = 4


class Stage:
    """A daemon, the page that its gates go by, and the pool that it calls."""

    def __init__(self, page: MetricsPage, pool: SimulatedPool, probe: MemoryProbe) -> None:
        self.page = page
        self.pool = pool
        self._probe = probe
        self._count = pool.ledger.called
        pool.ledger.called = self._called  # type: ignore[method-assign]
        self.worst = 0
        """How many calls there were at most on top of what the page had allowed by then."""

    def _called(self, request_id: str) -> None:
        self._count(request_id)
        self.worst = max(self.worst, self.pool.ledger.total - PER_READING * self.page.asked)

    async def submit(self) -> None:
        deadline = time.time() + 600
        for queue in QUEUES:
            for number in range(EACH):
                request_id = f"{queue}-{number}"
                payload = {"user": request_id, "prompt": "hi"}
                body = message(request_id, deadline=deadline, payload=payload)
                await self._probe.submit(queue, body, score(deadline, number))

    def parts(self, *, pool_gate: bool) -> Parts:
        gate = {
            "type": "endpoint-scrape",
            "url": self.page.url,
            "metric": "room",
            "value_type": "budget",
        }
        queues = [
            {"queue_name": name, "igw_base_url": self.pool.url, "gate": gate} for name in QUEUES
        ]
        workers: dict[str, Any] = {"id": "default", "workers": WORKERS}
        settings = validated(
            {
                "transport": {"type": "memory", "queues": queues},
                "worker_pools": [workers | {"gate": gate} if pool_gate else workers],
                "server": {"bind": "127.0.0.1", "health_port": 0, "metrics_port": 0},
            },
            {},
        )
        return build(settings, transport=MemoryTransport(MemorySettings(), self._probe.broker))


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        page = await stack.enter_async_context(MetricsPage())
        pool = await stack.enter_async_context(SimulatedPool())
        yield Stage(page, pool, await stack.enter_async_context(memory_probe()))


@asynccontextmanager
async def running(parts: Parts) -> AsyncIterator[None]:
    daemon = asyncio.create_task(Daemon(parts).run())
    await until(lambda: daemon.done() or parts.shared.readiness.serving)
    try:
        yield
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        await daemon


@pytest.mark.parametrize("pool_gate", [False, True])
async def test_queues_with_one_gate_page_spend_its_readings_together(
    stage: Stage, pool_gate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gates, "SCRAPE_INTERVAL", 0.1)
    stage.page.set("room", PER_READING / WORKERS)
    await stage.submit()
    async with running(stage.parts(pool_gate=pool_gate)):
        await until(lambda: stage.pool.ledger.total == EACH * len(QUEUES))
    assert stage.worst <= 0
    assert not stage.pool.ledger.repeated()


async def test_a_reading_that_is_spent_is_what_the_status_says_holds_its_queues_back(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gates, "SCRAPE_INTERVAL", 300)
    stage.page.set("room", PER_READING / WORKERS)
    await stage.submit()
    parts = stage.parts(pool_gate=False)

    async def reasons() -> set[str]:
        async with httpx.AsyncClient(timeout=60) as client:
            status = await client.get(f"http://127.0.0.1:{parts.health.port}/status")
        return {queue["why"] for queue in status.json()["queues"]}

    async def told() -> bool:
        return all(
            "as many have started as the last reading allows" in why for why in await reasons()
        )

    async with running(parts):
        await until(lambda: stage.pool.ledger.total == PER_READING)
        await eventually(told)
        assert all(why.startswith("the queue's gate holds back: ") for why in await reasons())
