"""Ends leases that nobody here works on, in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from async_processor.clock import Clock
from async_processor.transport.google_pubsub.leases import Lease, Leases


class Partings:
    """What is on its way back: no longer held, and not given back yet."""

    def __init__(self, leases: Leases, clock: Clock) -> None:
        self._leases = leases
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()

    def end(self, lease: Lease, work: Coroutine[Any, Any, Any]) -> None:
        """Do what ends the lease; from now on nothing else does."""
        lease.settling = True
        self.spawn(self._ended(lease, work))

    async def _ended(self, lease: Lease, work: Coroutine[Any, Any, Any]) -> None:
        try:
            await work
        finally:
            self._leases.drop(lease)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that nobody waits for but `done`."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def done(self, patience: float) -> None:
        """Wait for all of it, and for what is being settled; then give it up."""
        give_up = self._clock.monotonic() + patience
        while self._tasks or any(lease.settling for lease in self._leases):
            if self._clock.monotonic() > give_up:
                break
            await asyncio.sleep(0.01)
        for task in self._tasks:
            task.cancel()
