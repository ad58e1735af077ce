"""Whether this replica takes part: between the end of its start and the begin of its drain."""

from __future__ import annotations

import asyncio
from enum import StrEnum


class Stage(StrEnum):
    """Where the daemon is in its life."""

    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"


class Readiness:
    """Written by the daemon, read by `/readyz` and `/status`."""

    def __init__(self) -> None:
        self._stage = Stage.STARTING
        self._running = asyncio.Event()

    @property
    def stage(self) -> Stage:
        return self._stage

    @stage.setter
    def stage(self, stage: Stage) -> None:
        self._stage = stage
        if stage is Stage.RUNNING:
            self._running.set()

    async def running(self) -> None:
        """Return when the start is over."""
        await self._running.wait()

    @property
    def serving(self) -> bool:
        return self._stage is Stage.RUNNING
