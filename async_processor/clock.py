"""The only reader of clocks.

Deadlines are Unix times by the *broker's* clock, so that replicas with wrong clocks agree;
durations are monotonic. A `Clock` keeps the offset between the two: whoever hears the broker's
time calls `synchronise`, and a jump of the local wall clock changes nothing.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Unix time as the broker tells it, and monotonic time as this process counts it."""

    def now(self) -> float:
        """Unix time in seconds by the broker's clock."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""
        ...

    def synchronise(self, broker_now: float) -> None:
        """Take over the broker's Unix time in seconds, as just read."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for a duration in seconds."""
        ...


class SystemClock:
    """Starts with this machine's wall clock and follows the broker's from its first answer on."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        return time.monotonic() + self._offset

    def monotonic(self) -> float:
        return time.monotonic()

    def synchronise(self, broker_now: float) -> None:
        self._offset = broker_now - time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
