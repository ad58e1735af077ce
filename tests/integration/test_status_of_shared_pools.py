"""`/status` says whose requests keep a pool's places while others wait for one."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import httpx
import pytest

from async_processor.config.load import validated
from async_processor.daemon.build import Parts, build
from async_processor.daemon.daemon import Daemon
from async_processor.redis_io.connect import open_client
from async_processor.sim.pool import SimulatedPool
from async_processor.testing.eventually import eventually, until
from async_processor.testing.memory_probe import MemoryProbe, memory_probe
from async_processor.testing.messages import message
from async_processor.transport.memory import MemoryTransport
from async_processor.transport.settings import MemorySettings
from async_processor.wire.envelope import score


def settings(url: str, redis_url: str, policy: str) -> Mapping[str, Any]:
    """A queue whose requests wait in memory at a closed gate, and another in the same pool."""
    quota = {"type": "redis-quota", "url": redis_url, "limit": 1000, "gating_mode": "classifying"}
    closed = {
        "type": "tier-priority-admission",
        "saturation_gate": "redis",
        "saturation_gate_params": {"url": redis_url, "budget_key": "budget"},
    }
    queues = [
        {"queue_name": name, "igw_base_url": url, "gate": gate}
        for name, gate in (
            ("patient", {"type": "composite", "gates": [quota, closed]}),
            ("other", {"type": "constant"}),
        )
    ]
    return {
        "transport": {"type": "memory", "queues": queues},
        "worker_pools": [{"id": "default", "workers": 4}],
        "merge_policy": {"type": policy},
        "server": {"bind": "127.0.0.1", "health_port": 0, "metrics_port": 0},
    }


async def submit(probe: MemoryProbe, queue: str, number: int) -> None:
    deadline = time.time() + 900
    body = message(
        f"{queue}-{number}",
        deadline=deadline,
        payload={"prompt": "hi", "max_tokens": 1},
        metadata={"userid": "a"},
    )
    await probe.submit(queue, body, score(deadline, number))


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


@pytest.mark.parametrize(
    ("policy", "places"),
    [
        ("random-robin", "all workers of pool 'default' are taken: 4 requests"),
        ("tier-priority", "the places of pool 'default' are taken: "),
        ("weighted-fair", "the places of pool 'default' are taken: "),
    ],
)
async def test_whose_waiting_requests_have_the_places_is_told(
    redis_url: str, policy: str, places: str
) -> None:
    client = open_client(redis_url)
    await client.execute("SET", "budget", "0")
    await client.close()
    async with memory_probe() as probe, SimulatedPool() as pool:
        transport = MemoryTransport(MemorySettings(), probe.broker)
        parts = build(validated(settings(pool.url, redis_url, policy), {}), transport=transport)
        for number in range(40):
            await submit(probe, "patient", number)
        others = count()
        async with running(parts):

            async def told() -> bool:
                """Others run until the requests that wait have all the places."""
                await submit(probe, "other", next(others))
                why = (await whys(parts))["other"]
                return why.startswith(places) and "of queue 'patient' wait at a gate (" in why

            await eventually(told)
            assert "gate is closed" in (await whys(parts))["patient"]
