"""One process of a replica: the daemon as it always is, but that it is asked and told over a line
what a single one is asked on its ports and told by signals.

Without a supervisor it drains and ends.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from async_processor.admission.crew import Crew
from async_processor.daemon.build import Parts, build
from async_processor.daemon.daemon import Daemon
from async_processor.daemon.garbage import spare_the_garbage_collector
from async_processor.daemon.reload import take_over
from async_processor.daemon.tracing import build_tracing
from async_processor.errors import AsyncProcessorError, ConfigurationError
from async_processor.processes.line import Answers, Line, LineEnded
from async_processor.processes.orders import Begun, Failure, Orders, read
from async_processor.telemetry import logs
from async_processor.telemetry.health import BrokerProbe
from async_processor.transport.base import KnowsHolders

_TELLING_SECONDS: Final = 1.0

_log = logs.get_logger(__name__)


async def live(own_end: socket.socket) -> int:
    """Live once, from the supervisor's word to the end; returns the exit code."""
    return await _Process(own_end).run()


class _Process:
    def __init__(self, own_end: socket.socket) -> None:
        self._line = Line(own_end, {"begin": self._begin})
        self._work: asyncio.Future[_Work] = asyncio.get_running_loop().create_future()

    async def run(self) -> int:
        await self._line.open()
        listening = asyncio.create_task(self._listen())
        try:
            await self._do(await self._work)
        except LineEnded:
            return 0  # nothing has begun
        except AsyncProcessorError as error:
            await self._tell(error)
            return 2 if isinstance(error, ConfigurationError) else 1
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
        return 0

    async def _listen(self) -> None:
        await self._line.run()
        if self._work.done():
            self._work.result().daemon.end("supervisor gone")
        else:
            self._work.set_exception(LineEnded())

    async def _begin(self, content: Any) -> Begun:
        """Make the daemon; `run` then runs it, unless the supervisor is gone by now."""
        if self._work.done():
            raise LineEnded
        orders = msgspec.convert(content, Orders)
        logs.configure(level=orders.level, process=orders.rank + 1)
        try:
            work = _Work(orders)
        except Exception as error:
            self._work.set_exception(error)
            raise
        self._line.answer(work.answers)
        self._work.set_result(work)
        return work.begun

    async def _do(self, work: _Work) -> None:
        telling = asyncio.create_task(self._tell_running(work))
        try:
            await work.daemon.live()
        finally:
            telling.cancel()

    async def _tell_running(self, work: _Work) -> None:
        await work.parts.shared.readiness.running()
        with suppress(AsyncProcessorError):
            await self._line.ask("running")

    async def _tell(self, error: AsyncProcessorError) -> None:
        problems = error.problems if isinstance(error, ConfigurationError) else ()
        failure = Failure(
            problems=tuple((problem.path, problem.message) for problem in problems),
            message=str(error),
        )
        with suppress(AsyncProcessorError, TimeoutError):
            await self._line.ask("failed", failure, within=_TELLING_SECONDS)


class _Work:
    """The daemon, and the answers to what can be asked of it. Raises as `build`."""

    def __init__(self, orders: Orders) -> None:
        crew = Crew(processes=orders.processes, rank=orders.rank)
        settings = read(orders.settings)
        self.parts: Parts = build(settings, tracing=build_tracing(os.environ), crew=crew)
        self.daemon = Daemon(self.parts)
        shared = self.parts.shared
        self._changing = asyncio.Lock()
        self._probe = BrokerProbe(shared.transport.ping, shared.clock)
        self.answers: Answers = {
            "end": self._end,
            "page": self._page,
            "fault": self._fault,
            "status": self._status,
            "take over": self._take_over,
            "free": self._free,
        }
        spare_the_garbage_collector()

    @property
    def begun(self) -> Begun:
        transport = self.parts.shared.transport
        owner = transport.owner if isinstance(transport, KnowsHolders) else ""
        return Begun(owner=owner, traced=self.parts.shared.metrics.traced)

    async def _end(self, reason: str) -> None:
        self.daemon.end(reason)

    async def _page(self, _: None) -> bytes:
        return msgspec.msgpack.encode(self.parts.shared.metrics.page())

    async def _fault(self, _: None) -> str:
        """Why this process is not ready; empty when it is."""
        readiness = self.parts.shared.readiness
        return await self._probe.error() or (
            "" if readiness.serving else f"it is {readiness.stage}"
        )

    async def _status(self, _: None) -> Mapping[str, Any]:
        return await self.parts.status.read()

    async def _take_over(self, settings: str) -> None:
        """Who drains takes nothing over: new intakes would take in new work."""
        parts = self.parts
        async with self._changing:
            if parts.shared.readiness.serving:
                change = take_over(parts.topology, parts.shared, read(settings))
                await self.daemon.before_drain(asyncio.create_task(change))

    async def _free(self, owner: str) -> None:
        """Take back what a process held that is dead, and count a delivery for each."""
        transport = self.parts.shared.transport
        if not isinstance(transport, KnowsHolders):
            return
        for queue_name, metrics in tuple(self.parts.topology.metrics.items()):
            if count := await transport.reclaim_from(queue_name, owner):
                _log.warning("leases_reclaimed", queue_name=queue_name, count=count)
                metrics.leases_reclaimed(count)
