"""The instant server from outside: started on a free port, asked for its figures, ended."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import httpx
import msgspec

from async_processor.testing.servers import free_port
from benchmarks.instant_server import Stats
from benchmarks.processes import BenchmarkFailed, running

_LOOK_SECONDS: Final = 0.01
_PATIENCE: Final = 120.0


class Gateway:
    """A running one."""

    def __init__(self, url: str, pid: int) -> None:
        self.url = url
        self.pid = pid

    async def stats(self) -> Stats:
        """Its calls so far."""
        async with httpx.AsyncClient() as client:
            return msgspec.json.decode((await client.get(f"{self.url}/stats")).content, type=Stats)

    async def holding(self, calls: int) -> None:
        """Wait until it holds so many calls; raises BenchmarkFailed when they do not come."""
        deadline = time.monotonic() + _PATIENCE
        while (held := (await self.stats()).held) < calls:
            if time.monotonic() > deadline:
                raise BenchmarkFailed(f"of {calls} calls only {held} came")
            await asyncio.sleep(_LOOK_SECONDS)

    async def called(self, times: int, *, since: int) -> None:
        """Raises BenchmarkFailed unless so many calls have come since there were `since`."""
        if (came := (await self.stats()).calls - since) < times:
            raise BenchmarkFailed(f"there are results for {times} calls, but only {came} came")

    async def ready(self) -> None:
        """Wait until it answers."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                await self.stats()
            except httpx.TransportError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(_LOOK_SECONDS)
            else:
                return


@asynccontextmanager
async def instant_gateway(delay: float = 0.0, *, failures: int = 0) -> AsyncIterator[Gateway]:
    """A server that answers at once, or after `delay` seconds; the first `failures` calls fail."""
    port = free_port()
    arguments = (str(port), str(delay), str(failures))
    command = (sys.executable, "-m", "benchmarks.instant_server", *arguments)
    async with running(command, Path("/dev/null")) as process:
        gateway = Gateway(f"http://127.0.0.1:{port}", process.pid)
        await gateway.ready()
        yield gateway
