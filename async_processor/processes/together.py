"""What all processes show, as if they were one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from async_processor.errors import AsyncProcessorError, BrokerUnavailable
from async_processor.processes.berth import Berth
from async_processor.processes.life import Life
from async_processor.processes.status import merged as merged_status
from async_processor.telemetry import pages
from async_processor.telemetry.metrics import Metrics
from async_processor.telemetry.pages import Page


class _Exposed:
    def __init__(self, page: Page, *, traced: bool) -> None:
        self._page = page
        self.traced = traced

    def exposition(self) -> bytes:
        return pages.exposition(self._page)

    def openmetrics(self) -> bytes:
        return pages.openmetrics_exposition(self._page)


class Together:
    """Asks all processes whenever it is asked. `metrics` are the supervisor's own."""

    def __init__(self, berths: Sequence[Berth], metrics: Metrics) -> None:
        self._berths = berths
        self._metrics = metrics
        self._departed: Page = ()
        """What processes had counted that have ended."""

    @property
    def lives(self) -> Sequence[Life]:
        """Those that there are now."""
        return [berth.life for berth in self._berths if berth.life is not None]

    def departed(self, life: Life) -> None:
        """What it has counted stays."""
        self._departed = pages.merged([self._departed, pages.counts_of(life.page)])

    async def ready(self) -> None:
        """Raises BrokerUnavailable with the first process that is not, and why."""
        faults = await asyncio.gather(*(berth.fault() for berth in self._berths))
        for berth, fault in zip(self._berths, faults, strict=True):
            if fault:
                raise BrokerUnavailable(f"process {berth.number} of {len(self._berths)}: {fault}")

    async def exposed(self) -> _Exposed:
        """Of a process that does not answer what it showed last."""
        lives = self.lives
        await asyncio.gather(*map(_look, lives))
        # From here on nothing waits, so that nobody is counted both as living and as departed.
        shown = [*(life.page for life in self.lives), self._departed, self._metrics.page()]
        traced = any(life.begun is not None and life.begun.traced for life in lives)
        return _Exposed(pages.merged(shown), traced=traced)

    async def status(self) -> Mapping[str, Any]:
        """Queues and pools as of one process, and how each process stands."""
        told, faults = await asyncio.gather(
            asyncio.gather(*map(_told, self._berths)),
            asyncio.gather(*(berth.fault() for berth in self._berths)),
        )
        processes = [
            {
                "process": berth.number,
                "pid": berth.life and berth.life.pid,
                "ready": not fault,
                "why": fault,
            }
            for berth, fault in zip(self._berths, faults, strict=True)
        ]
        return {**merged_status([each for each in told if each]), "processes": processes}


async def _look(life: Life) -> None:
    with suppress(TimeoutError):
        await life.look()


async def _told(berth: Berth) -> Mapping[str, Any]:
    """A process's own status; empty when it does not answer."""
    if berth.life is not None:
        with suppress(AsyncProcessorError, TimeoutError):
            status: Mapping[str, Any] = await berth.life.ask("status")
            return status
    return {}
