"""What a dead process held goes back to the broker at once: one of the others sees to it.

Nobody waits for the leases to end, and a delivery is counted for each all the same, for one of them
may be what killed the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from async_processor.errors import AsyncProcessorError
from async_processor.processes.life import Life

LATE: Final = 1.0
"""Seconds after which it is done once more: a claim that was on its way may have come after the
death."""

_PAUSE: Final = 0.1
"""Seconds between two tries to find somebody."""
_ANSWER_SECONDS: Final = 10.0


class Bequests:
    """`lives` tells who lives now."""

    def __init__(self, lives: Callable[[], Sequence[Life]]) -> None:
        self._lives = lives
        self._tasks: set[asyncio.Task[None]] = set()

    def leave(self, owner: str) -> None:
        """The process that was `owner` in the broker is dead."""
        task = asyncio.get_running_loop().create_task(self._settle(owner))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """What is not settled yet waits for its leases to end."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _settle(self, owner: str) -> None:
        for wait in (0.0, LATE):
            await asyncio.sleep(wait)
            await self._have_freed(owner)

    async def _have_freed(self, owner: str) -> None:
        """Ask one after the other until somebody has done it."""
        while True:
            for life in self._lives():
                if life.running and await _frees(life, owner):
                    return
            await asyncio.sleep(_PAUSE)


async def _frees(life: Life, owner: str) -> bool:
    try:
        await life.ask("free", owner, within=_ANSWER_SECONDS)
    except (AsyncProcessorError, TimeoutError):
        return False
    return True
