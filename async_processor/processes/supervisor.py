"""The supervisor of a replica's processes: starts them, follows the dead with new ones, answers for
all of them on the ports, and passes on signals and changes of the configuration.

It touches no broker. What a dead process held the others give back for it, at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from async_processor.clock import SystemClock
from async_processor.config.settings import Settings
from async_processor.daemon.config_watch import ConfigWatch
from async_processor.daemon.rereading import ReadSettings, reread
from async_processor.daemon.signals import heeded
from async_processor.errors import AsyncProcessorError
from async_processor.lifecycle import Watch
from async_processor.processes.bequest import Bequests
from async_processor.processes.berth import Berth, ProcessFailed
from async_processor.processes.life import ANSWER_SECONDS, Life, ending, follow
from async_processor.processes.orders import Orders, written
from async_processor.processes.together import Together
from async_processor.telemetry.exposition import exposition_server
from async_processor.telemetry.health import health_server
from async_processor.telemetry.logs import get_logger
from async_processor.telemetry.metrics import Metrics

STOPPING_SECONDS: Final = 15.0
"""What a process may take besides its drain; one that takes longer is killed."""

_log = get_logger(__name__)


class Supervisor:
    """Of so many `processes`, each run by `command`; `level` is that of their logs."""

    def __init__(
        self, settings: Settings, command: Sequence[str], *, processes: int, level: str
    ) -> None:
        self._settings = settings
        self._command = command
        self._level = level
        self._metrics = Metrics()
        self._clock = SystemClock()
        self._berths = [
            Berth(rank + 1, partial(self._new_life, rank), self._died) for rank in range(processes)
        ]
        self._together = Together(self._berths, self._metrics)
        self._bequests = Bequests(lambda: self._together.lives)
        self._following: set[asyncio.Task[None]] = set()
        self._changing = asyncio.Lock()
        self._ending = False
        self._said_ready = False
        self._build_servers(settings)

    def _build_servers(self, settings: Settings) -> None:
        server = settings.server
        self._health = health_server(
            serving=lambda: not self._ending,
            ping=self._together.ready,
            status=self._together.status,
            clock=self._clock,
            port=server.health_port,
            bind=server.bind,
            bearer_token=server.bearer_token,
            patience=ANSWER_SECONDS + 1,
        )
        self._exposition = exposition_server(
            self._together.exposed,
            port=server.metrics_port,
            bind=server.bind,
            bearer_token=server.bearer_token,
        )

    async def run(self, read: ReadSettings, files: Sequence[Path], *, seen: bytes) -> None:
        """Until a signal comes and all have drained.

        Raises what a process said that cannot start, or ProcessFailed.
        """
        watch = ConfigWatch(files, partial(self._reload, read), seen=seen)
        with heeded(self._end, watch.ask):
            try:
                await self._health.start()
                await self._exposition.start()
                await self._supervise(watch)
            finally:
                await self._bequests.stop()
                await self._exposition.stop()
                await self._health.stop()
                _log.info("stopped")

    async def _supervise(self, watch: ConfigWatch) -> None:
        side_tasks = Watch()
        side_tasks.spawn("configuration", watch.run())
        failure = asyncio.create_task(side_tasks.failure())
        places = [asyncio.create_task(berth.run()) for berth in self._berths]
        try:
            everybody = asyncio.create_task(_all(places))
            await asyncio.wait({failure, everybody}, return_when=asyncio.FIRST_COMPLETED)
            if not everybody.done() or everybody.exception() is not None:
                self._end("failure")
                await asyncio.wait(places)
            await everybody
            if failure.done():
                raise failure.result()
        finally:
            failure.cancel()
            await side_tasks.stop()
        for berth in self._berths:
            if berth.code:
                raise ProcessFailed(f"process {berth.number} {ending(berth.code)}")

    def _end(self, reason: str) -> None:
        _log.info("signal", signal=reason, again=self._ending)
        if not self._ending:
            self._ending = True
            patience = self._settings.drain_timeout + STOPPING_SECONDS
            asyncio.get_running_loop().call_later(patience, self._kill)
        for berth in self._berths:
            berth.end(reason)

    def _kill(self) -> None:
        for life in self._together.lives:
            _log.error("process_does_not_end", pid=life.pid)
            life.kill()

    def _new_life(self, rank: int) -> Life:
        orders = Orders(
            settings=written(self._settings),
            processes=len(self._berths),
            rank=rank,
            level=self._level,
        )
        return Life(self._command, orders, self._started)

    def _died(self, life: Life, code: int) -> None:
        self._together.departed(life)
        if code and life.begun is not None and life.begun.owner:
            self._bequests.leave(life.begun.owner)

    def _started(self) -> None:
        lives = [life for life in self._together.lives if life.running]
        if len(lives) == len(self._berths) and not self._said_ready:
            self._said_ready = True
            _log.info(
                "ready",
                queues=[queue.queue_name for queue in self._settings.queues],
                processes=len(lives),
                health_port=self._health.port,
                metrics_port=self._exposition.port,
            )
        self._catch_up()

    async def _reload(self, read: ReadSettings) -> None:
        if self._ending:
            return
        await reread(read, self._take_over, self._settings, self._metrics, self._clock)

    async def _take_over(self, settings: Settings) -> None:
        """All go by the new settings, or all by the old ones."""
        async with self._changing:
            faults = await self._have_followed(settings)
            if faults:
                await self._have_followed(self._settings)
                raise AsyncProcessorError("\n".join(faults))
            self._settings = settings
        self._catch_up()

    async def _have_followed(self, settings: Settings) -> Sequence[str]:
        """Why processes do not, each reason once."""
        text = written(settings)
        lives = [life for life in self._together.lives if life.running]
        answers = await asyncio.gather(*(follow(life, text) for life in lives))
        return list(dict.fromkeys(filter(None, answers)))

    def _catch_up(self) -> None:
        """Who came while the settings changed goes by the latest too."""
        task = asyncio.get_running_loop().create_task(self._follow_latest())
        self._following.add(task)
        task.add_done_callback(self._following.discard)

    async def _follow_latest(self) -> None:
        async with self._changing:
            latest = written(self._settings)
            late = [each for each in self._together.lives if each.settings != latest]
            for life in late:
                if life.running and (fault := await follow(life, latest)):
                    _log.error("configuration_not_reloaded", key=fault, error=fault)


async def _all(places: Sequence[asyncio.Task[None]]) -> None:
    """Until all have ended; raises what the first one does that fails."""
    await asyncio.gather(*places)
