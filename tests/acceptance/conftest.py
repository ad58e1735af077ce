"""The stage of the acceptance ring: a broker, a simulated pool, daemon processes, a producer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from async_processor.producer import Producer
from async_processor.testing.daemons import DaemonProcess, short_lived_settings
from async_processor.testing.servers import RedisServer

Fleet = Callable[..., DaemonProcess]


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    """A Redis that survives being killed: every confirmed write is in its log."""
    with RedisServer(args=["--appendonly", "yes", "--appendfsync", "always"]) as server:
        yield server


@pytest.fixture
async def producer(redis_server: RedisServer) -> AsyncIterator[Producer]:
    async with Producer(redis_server.url) as made:
        yield made


@pytest.fixture
async def fleet(redis_server: RedisServer, tmp_path: Path) -> AsyncIterator[Fleet]:
    """Makes daemons that share the broker; all that still run at the end are killed."""
    async with AsyncExitStack() as stack:
        made: list[DaemonProcess] = []

        def make(gateway: str, **changes: Any) -> DaemonProcess:
            daemon = DaemonProcess(
                short_lived_settings(redis_server.url, gateway, **changes),
                tmp_path / f"daemon-{len(made)}",
            )
            made.append(daemon)
            stack.push_async_exit(daemon)
            return daemon

        yield make
