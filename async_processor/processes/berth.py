"""The place of one process: whoever dies there is followed by another.

The next one comes at once, unless several have lived but a moment; then after a pause that grows.
When the first says why it cannot start, or several in a row could not, nobody tries any more, and
the replica ends.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from async_processor.errors import AsyncProcessorError
from async_processor.processes.life import Life, Lifeless, ending
from async_processor.telemetry.logs import get_logger
from async_processor.telemetry.masking import mask_url, one_line

MOMENT: Final = 10.0
"""Seconds that a life lasts at least not to count as a short one."""

FALSE_STARTS: Final = 5
"""So many in a row are enough."""

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 10.0

_log = get_logger(__name__)


class ProcessFailed(AsyncProcessorError):
    """A process ended, and the next one would end as well."""


class Berth:
    """Written by `run` alone; `new_life` makes the next process, `died` hears of each that ended,
    drained ones too, and with which code."""

    def __init__(
        self, number: int, new_life: Callable[[], Life], died: Callable[[Life, int], None]
    ) -> None:
        self.number = number
        """From 1 on, as people count."""
        self.life: Life | None = None
        self.code = 0
        """How the last one ended; 0 once another is to follow."""
        self._new_life = new_life
        self._died = died
        self._ever_ran = False
        self._false_starts = 0
        self._false_start = ""
        """Why the last one could not start; empty when it could."""
        self._short_lives = 0
        self._unwanted = asyncio.Event()

    async def run(self) -> None:
        """Until `end`; raises ProcessFailed, or what a process said, when none can start."""
        while not self._unwanted.is_set():
            self.life, born_at = self._new_life(), time.monotonic()
            self.code = await self.life.run()
            ended, self.life = self.life, None
            self._died(ended, self.code)
            if not self._unwanted.is_set():
                self._judge(ended, time.monotonic() - born_at)
                self.code = 0
                await self._pause()

    def end(self, reason: str) -> None:
        """Let the process drain, or, asked a second time, give everything back; nobody follows."""
        self._unwanted.set()
        if self.life is not None:
            self.life.end(reason)

    async def fault(self) -> str:
        """Why it is not ready; empty when it is."""
        fault = await self.life.fault() if self.life else "it has died, and the next is to come"
        before = self._false_start
        return (
            f"{fault}; the one before it could not start: {before}" if fault and before else fault
        )

    def _judge(self, ended: Life, lived: float) -> None:
        """Raise when nobody shall follow."""
        fault = str(ended.failure or ending(self.code))
        _log.error("process_died", process=self.number, error=fault, lived=round(lived, 1))
        self._ever_ran |= ended.running
        self._false_starts = 0 if ended.running else self._false_starts + 1
        self._false_start = "" if ended.running else one_line(mask_url(fault))
        self._short_lives = self._short_lives + 1 if lived < MOMENT else 0
        hopeless = _says_why(ended) and not self._ever_ran
        if hopeless or self._false_starts >= FALSE_STARTS:
            raise ended.failure or ProcessFailed(f"process {self.number} {fault}")

    async def _pause(self) -> None:
        if self._short_lives <= 1:
            return
        longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** (self._short_lives - 2))
        with suppress(TimeoutError):
            async with asyncio.timeout(longest * random.uniform(0.5, 1)):
                await self._unwanted.wait()


def _says_why(ended: Life) -> bool:
    """One that could not be born or hung says nothing."""
    return ended.failure is not None and not isinstance(ended.failure, Lifeless)
