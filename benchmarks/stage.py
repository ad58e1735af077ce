"""What every benchmark stands on: a broker of its own, and a driver that loads it."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from async_processor.redis_io.client import Argument, Command, RedisClient
from async_processor.redis_io.connect import open_client
from async_processor.testing.servers import RedisServer
from async_processor.wire import result
from async_processor.wire.result import Result
from benchmarks.contender import Contender, Running, started
from benchmarks.messages import (
    ASIDE,
    QUEUE,
    RESULTS,
    Message,
    laid_aside,
    messages,
    messages_of,
)
from benchmarks.processes import BenchmarkFailed

_LOOK_SECONDS: Final = 0.01
_PATIENCE: Final = 300.0


class Stage:
    """Built for one measurement and torn down after it, so that none leaves traces to the next."""

    def __init__(self, server: RedisServer, client: RedisClient, folder: Path) -> None:
        self.server = server
        self._client = client
        self._folder = folder
        self._processor: Running | None = None

    @property
    def broker(self) -> str:
        return self.server.url

    async def ask(self, *command: Argument, wait: float = 0) -> Any:
        """One command of the driver's own, which itself blocks for at most `wait` seconds."""
        return await self._client.execute(*command, wait=wait)

    async def lay_aside(self, count: int, body: bytes) -> None:
        """Write a backlog of equal requests where the processor does not look."""
        await self.lay_aside_messages(messages(count, body))

    async def lay_aside_each(self, bodies: Iterable[bytes]) -> None:
        """Write a backlog of these payloads where the processor does not look."""
        await self.lay_aside_messages(messages_of(bodies))

    async def lay_aside_messages(self, load: Iterable[Message], *, key: str = ASIDE) -> None:
        """Write a backlog where the processor does not look; clears the results before it."""
        await self.ask("DEL", RESULTS)
        await self.send(laid_aside(load, key=key))

    async def send(self, batches: Iterable[Sequence[Command]]) -> None:
        """Pipelines of the driver's own."""
        for batch in batches:
            await self._client.pipeline(batch)

    async def release(self, *, key: str = ASIDE, to: str = QUEUE) -> None:
        """Put a backlog that was laid aside where the processor looks, at one stroke."""
        await self.ask("RENAME", key, to)

    async def work_off(self, count: int, *, patience: float = _PATIENCE) -> float:
        """Release the backlog; returns the seconds until its last result stands.

        Raises:
            BenchmarkFailed: the processor ended, or it took longer than `patience` seconds.
        """
        start = time.perf_counter()
        await self.release()
        await self.results(count, patience=patience)
        return time.perf_counter() - start

    async def results(self, count: int, *, patience: float = _PATIENCE) -> None:
        """Wait until so many results stand; raises as `work_off`."""
        end = time.perf_counter() + patience
        while (stand := await self.ask("LLEN", RESULTS)) < count:
            self._check()
            if time.perf_counter() > end:
                raise BenchmarkFailed(
                    f"of {count} results only {stand} stand after {patience:g} s:\n{self._log()}"
                )
            await asyncio.sleep(_LOOK_SECONDS)

    async def succeeded(self, count: int) -> Sequence[Result]:
        """The results, of so many requests; raises BenchmarkFailed unless each has a good one."""
        found = [_good(body) for body in await self.ask("LRANGE", RESULTS, 0, -1)]
        answered = len({each.id for each in found})
        if not len(found) == answered == count:
            raise BenchmarkFailed(f"{count} requests: {len(found)} results, of {answered} of them")
        return found

    async def next_result(self, *, patience: int) -> Result:
        """Wait for a result, so many seconds, and take it; raises BenchmarkFailed as above."""
        popped = await self.ask("BRPOP", RESULTS, patience, wait=patience)
        if popped is None:
            self._check()
            raise BenchmarkFailed(f"no result came within {patience} s:\n{self._log()}")
        return _good(popped[1])

    def _check(self) -> None:
        if self._processor is not None:
            self._processor.check()

    def _log(self) -> str:
        return self._processor.log() if self._processor is not None else ""

    @asynccontextmanager
    async def processor(
        self, contender: Contender, gateway: str, *, workers: int
    ) -> AsyncIterator[Running]:
        """The processor, ready, before a gateway."""
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        async with started(
            contender, folder, broker=self.broker, gateway=gateway, workers=workers
        ) as running:
            self._processor = running
            yield running


def _good(body: bytes) -> Result:
    try:
        found = result.decode(body)
    except msgspec.MsgspecError as error:
        raise BenchmarkFailed(
            f"no result as the contract has it ({error}): {body[:500]!r}"
        ) from None
    if not found.succeeded:
        raise BenchmarkFailed(f"a request failed: {body[:500]!r}")
    return found


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    """An empty broker of its own, redis-server from PATH or else the embedded Valkey."""
    async with AsyncExitStack() as stack:
        server = stack.enter_context(RedisServer())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-")))
        client = open_client(server.url)
        stack.push_async_callback(client.close)
        yield Stage(server, client, folder)
