"""A daemon inside the test's own process, on a broker in memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from async_processor.config.load import validated
from async_processor.daemon.build import Parts, build
from async_processor.daemon.daemon import Daemon
from async_processor.testing.eventually import eventually
from async_processor.testing.memory_probe import MemoryProbe, memory_probe
from async_processor.testing.messages import message
from async_processor.transport.memory import MemoryTransport
from async_processor.transport.settings import MemorySettings
from async_processor.wire import result as results
from async_processor.wire.envelope import score
from async_processor.wire.result import Result

if TYPE_CHECKING:
    from async_processor.telemetry.tracing import Tracing

QUEUE = "request-sortedset"


class InMemory:
    """A daemon that runs, and its broker."""

    def __init__(self, probe: MemoryProbe, parts: Parts) -> None:
        self.probe = probe
        self.parts = parts

    async def submit(self, request_id: str, **fields: Any) -> None:
        """Submit a request that has ten minutes."""
        deadline = time.time() + 600
        body = message(request_id, deadline=deadline, **fields)
        await self.probe.submit(QUEUE, body, score(deadline, 0))

    async def results(self, count: int) -> Mapping[str, Result]:
        """Wait for that many results, no more and no fewer; by their ids."""

        async def all_there() -> Sequence[bytes] | None:
            found = await self.probe.results("result-list")
            return found if len(found) >= count else None

        found = [results.decode(body) for body in await eventually(all_there) or ()]
        if len(found) != count:
            raise AssertionError(f"{len(found)} results where {count} should be")
        return {each.id: each for each in found}


@asynccontextmanager
async def in_memory(
    gateway: str,
    *,
    queue: Mapping[str, Any] | None = None,
    tracing: Tracing | None = None,
    **others: Any,
) -> AsyncIterator[InMemory]:
    """Run a daemon with one queue; what still runs at the end is cut off."""
    settings = {
        "transport": {"type": "memory", "queues": [{"igw_base_url": gateway, **(queue or {})}]},
        "retry": {"base_delay": 0.05, "max_delay": 0.1},
        "server": {"bind": "127.0.0.1", "health_port": 0, "metrics_port": 0},
        "drain_timeout": 0,
        **others,
    }
    async with memory_probe() as probe:
        transport = MemoryTransport(MemorySettings(), probe.broker)
        parts = build(validated(settings, {}), transport=transport, tracing=tracing)
        running = asyncio.create_task(Daemon(parts).run())
        try:
            yield InMemory(probe, parts)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
