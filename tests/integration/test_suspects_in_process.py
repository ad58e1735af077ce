"""Suspects of a busy pool do not hold up those of another pool, and `/status` says who waits."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from async_processor.config.load import validated
from async_processor.daemon.build import Parts, build
from async_processor.daemon.daemon import Daemon
from async_processor.dispatch import suspects
from async_processor.settlement.held import Phase
from async_processor.sim.pool import SimulatedPool
from async_processor.testing.eventually import eventually, until
from async_processor.testing.memory_probe import MemoryProbe, memory_probe
from async_processor.testing.messages import message
from async_processor.testing.stage import lose
from async_processor.transport.memory import MemoryTransport
from async_processor.transport.settings import MemorySettings
from async_processor.wire import result as results
from async_processor.wire.envelope import score


async def submit(probe: MemoryProbe, queue: str, request_id: str, *, left: float = 900) -> None:
    deadline = time.time() + left
    payload = {"prompt": "hi", "max_tokens": 4}
    body = message(request_id, deadline=deadline, payload=payload)
    await probe.submit(queue, body, score(deadline, 0))


def two_pools(busy: SimulatedPool, free: SimulatedPool) -> Mapping[str, Any]:
    """Each with one worker, and a policy that claims requests before a worker is free."""
    queues = [
        {"queue_name": name, "igw_base_url": pool.url, "worker_pool_id": name}
        for name, pool in (("busy", busy), ("free", free))
    ]
    return {
        "transport": {"type": "memory", "queues": queues},
        "worker_pools": [{"id": "busy", "workers": 1}, {"id": "free", "workers": 1}],
        "merge_policy": {"type": "weighted-fair"},
        "server": {"bind": "127.0.0.1", "health_port": 0, "metrics_port": 0},
    }


async def whys(parts: Parts) -> Mapping[str, str]:
    async with httpx.AsyncClient(timeout=60) as client:
        answer = await client.get(f"http://127.0.0.1:{parts.health.port}/status")
    return {queue["queue_name"]: queue["why"] for queue in answer.json()["queues"]}


@asynccontextmanager
async def running(parts: Parts) -> AsyncIterator[None]:
    task = asyncio.create_task(Daemon(parts).run())
    try:
        await until(lambda: parts.shared.readiness.serving or task.done())
        yield
    finally:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0)
        await task


async def test_a_suspect_that_waits_for_its_turn_makes_room_for_another_pools(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(suspects, "PATIENCE", 3600.0)
    async with (
        memory_probe() as probe,
        SimulatedPool(latency=3600) as busy,
        SimulatedPool() as free,
    ):
        transport = MemoryTransport(MemorySettings(), probe.broker)
        parts = build(validated(two_pools(busy, free), {}), transport=transport)
        held = parts.shared.holdings
        for queue in ("busy", "free"):
            await submit(probe, queue, f"suspect-{queue}")
            await lose(probe, 1, times=2, queue=queue)
        await submit(probe, "busy", "long", left=600)
        async with running(parts):
            await until(lambda: {each.phase for each in held} == {Phase.QUEUED, Phase.IN_FLIGHT})

            async def answered() -> bool:
                bodies = await probe.results("result-list")
                return "suspect-free" in {results.decode(body).id for body in bodies}

            async def told() -> bool:
                why = await whys(parts)
                return await answered() or "a request of queue 'busy' is now" in why["free"]

            await eventually(told)
            monkeypatch.setattr(suspects, "PATIENCE", 0.0)
            await eventually(answered)
