"""The daemon's life: start, run, drain, stop.

Stopping has two scopes. On SIGTERM or SIGINT nothing new is claimed, what has not been sent is
given back, and running calls may end within `drain_timeout`. When that is over, or on a second
signal, they are cut off and given back too, without a counted attempt. Then every lease of this
process is freed, so that another replica can go on at once. SIGHUP ends nothing at any time: one
that comes during the start is heeded after it, one that comes during the drain is not.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from async_processor.daemon.build import Parts
from async_processor.daemon.config_watch import ConfigWatch
from async_processor.daemon.readiness import Stage
from async_processor.daemon.signals import heeded
from async_processor.errors import BrokerUnavailable
from async_processor.lifecycle import Watch, few_at_a_time
from async_processor.settlement.held import Interruption, Phase
from async_processor.telemetry.logs import get_logger

SETTLING_TIME: Final = 5.0
"""Seconds for what was cut off to be given back, before the leases are freed wholesale."""

_log = get_logger(__name__)


class Daemon:
    """Runs the parts until it is to end or a side task dies.

    With `watch_config`, a side task, the configuration can change meanwhile.
    """

    def __init__(self, parts: Parts, watch_config: ConfigWatch | None = None) -> None:
        self._parts = parts
        self._watch_config = watch_config
        self._taking = Watch()
        """Whatever brings work in; stopped first."""
        self._keeping = Watch()
        """Whatever looks after work that is here; stopped last."""
        self._drain = asyncio.Event()
        self._hurry = asyncio.Event()

    async def run(self) -> None:
        """Like `live`, until a signal comes."""
        with heeded(self.end, self._watch_config.ask if self._watch_config else None):
            await self.live()

    async def live(self) -> None:
        """Run to the end; raises SideTaskDied when a part of the daemon failed.

        Also raises BrokerRefused or ConfigurationError when it cannot start.
        """
        try:
            if await self.before_drain(self._start()):
                self._parts.shared.readiness.stage = Stage.RUNNING
                self._say_ready()
                await self.before_drain(self._failure())
            await self._give_work_back()
        finally:
            await self._stop()

    def end(self, name: str) -> None:
        """Drain, or, asked a second time, give everything back at once; `name` says who asks."""
        _log.info("signal", signal=name, again=self._drain.is_set())
        if self._drain.is_set():
            self._hurry.set()
        self._drain.set()

    async def before_drain(self, work: asyncio.Task[None]) -> bool:
        """Wait for the end of `work`; False when a signal came first and `work` was given up."""
        signalled = asyncio.create_task(self._drain.wait())
        try:
            await asyncio.wait({work, signalled}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                await work
                return True
            return False
        finally:
            for task in (work, signalled):
                task.cancel()
            await asyncio.gather(work, signalled, return_exceptions=True)

    def _start(self) -> asyncio.Task[None]:
        return asyncio.create_task(self._start_parts(), name="start")

    async def _start_parts(self) -> None:
        for service in self._parts.services():
            await service.start()
        for name, task in self._parts.keeping().items():
            self._keeping.spawn(name, task)
        for name, task in self._parts.taking().items():
            self._taking.spawn(name, task)
        self._parts.topology.feed(self._taking)
        if self._watch_config is not None:
            self._taking.spawn("configuration", self._watch_config.run())

    def _say_ready(self) -> None:
        _log.info(
            "ready",
            queues=[route.queue.queue_name for route in self._parts.topology.routes],
            **self._parts.ports(),
        )

    def _failure(self) -> asyncio.Task[None]:
        return asyncio.create_task(self._first_failure(), name="failure")

    async def _first_failure(self) -> None:
        waits = [asyncio.create_task(watch.failure()) for watch in (self._taking, self._keeping)]
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            death = done.pop().result()
            _log.error("side_task_died", error=str(death))
            raise death
        finally:
            for wait in waits:
                wait.cancel()

    async def _give_work_back(self) -> None:
        """Drain: first what was not sent, then, when the time is up, what was."""
        self._parts.shared.readiness.stage = Stage.DRAINING
        await self._taking.stop()
        holdings = self._parts.shared.holdings
        for held in holdings:
            if held.phase in (Phase.QUEUED, Phase.PARKED):
                held.interrupt(Interruption.DRAINED)
        _log.info(
            "draining", running=len(holdings), timeout=self._parts.topology.settings.drain_timeout
        )
        await self._patience(self._parts.topology.settings.drain_timeout)
        async for held in few_at_a_time(holdings):
            held.interrupt(Interruption.DRAINED)
        await self._patience(SETTLING_TIME, hurry=False)

    async def _patience(self, seconds: float, *, hurry: bool = True) -> None:
        """Wait until nothing is held, for a time; a second signal ends it."""
        waits: set[asyncio.Task[Any]] = {asyncio.create_task(self._parts.shared.holdings.empty())}
        if hurry:
            waits.add(asyncio.create_task(self._hurry.wait()))
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)

    async def _stop(self) -> None:
        await self._taking.stop()
        await self._keeping.stop()
        for service in reversed(self._parts.services()):
            try:
                await service.stop()
            except BrokerUnavailable as error:
                _log.warning("not_stopped_cleanly", error=str(error))
        _log.info("stopped")
