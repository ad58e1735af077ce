"""How an intake asks that knows neither how many messages there are nor who else is quicker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from async_processor.config.load import validated
from async_processor.daemon.build import build
from async_processor.daemon.daemon import Daemon
from async_processor.dispatch import intake
from async_processor.sim.pool import SimulatedPool
from async_processor.testing.eventually import eventually, until
from async_processor.testing.memory_probe import memory_probe
from async_processor.testing.messages import message
from async_processor.transport.base import Delivery
from async_processor.transport.memory import MemoryTransport
from async_processor.transport.memory_broker import MemoryBroker
from async_processor.transport.settings import MemorySettings
from async_processor.wire.envelope import score

QUEUE = "request-sortedset"
LOOK = "look"


class Slow(MemoryTransport):
    """A replica whose first claims come too late."""

    too_late = 0

    def __init__(self, settings: MemorySettings, broker: MemoryBroker) -> None:
        super().__init__(settings, broker)
        self.steps: list[str | int] = []
        """Looks, and for how many messages each claim asked."""

    @property
    def claims(self) -> int:
        return len(self.steps) - self.steps.count(LOOK)

    async def wait_for_work(self, queue_name: str, timeout: float) -> bool:
        self.steps.append(LOOK)
        return await super().wait_for_work(queue_name, timeout)

    async def claim(self, queue_name: str, limit: int, *, suspects: bool) -> Sequence[Delivery]:
        self.steps.append(limit)
        if self.claims <= self.too_late:
            return ()
        return await super().claim(queue_name, limit, suspects=suspects)


@pytest.fixture(autouse=True)
def _endless_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "EMPTY_HANDED_PAUSE", 3600.0)


@asynccontextmanager
async def waiting(
    count: int, *, too_late: int = 0
) -> AsyncIterator[tuple[Slow, asyncio.Task[bool]]]:
    """A daemon for whom requests wait; the task ends with their results."""
    async with memory_probe() as probe, SimulatedPool() as pool:
        transport = Slow(MemorySettings(), probe.broker)
        transport.too_late = too_late
        deadline = time.time() + 600
        for number in range(count):
            body = message(f"r-{number}", deadline=deadline)
            await probe.submit(QUEUE, body, score(deadline, number))
        daemon = asyncio.create_task(Daemon(build(_settings(pool.url), transport=transport)).run())

        async def answered() -> bool:
            return len(await probe.results("result-list")) == count

        result = asyncio.create_task(eventually(answered))
        try:
            yield transport, result
        finally:
            daemon.cancel()
            result.cancel()
            await asyncio.gather(daemon, result, return_exceptions=True)


def _settings(gateway: str) -> Any:
    settings = {
        "transport": {"type": "memory", "queues": [{"igw_base_url": gateway}]},
        "server": {"bind": "127.0.0.1", "health_port": 0, "metrics_port": 0},
        "drain_timeout": 0,
    }
    return validated(settings, {})


async def test_who_comes_too_late_once_looks_again_at_once() -> None:
    async with waiting(1, too_late=1) as (_, result):
        await result


async def test_who_comes_too_late_twice_lets_others_go_first() -> None:
    async with waiting(1, too_late=2) as (transport, result):
        await until(lambda: transport.claims == 2)
        for _ in range(1000):
            await asyncio.sleep(0)
        assert transport.claims == 2
        assert not result.done()


async def test_a_claim_after_a_look_asks_for_few_and_the_next_follows_at_once() -> None:
    count = 3 * intake.FIRST_CLAIM
    async with waiting(count) as (transport, result):
        await result
        look, first, second, *_ = transport.steps
        assert (look, first) == (LOOK, intake.FIRST_CLAIM)
        assert isinstance(second, int)
        assert second >= count - intake.FIRST_CLAIM
