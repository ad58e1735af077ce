"""A clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
import heapq
from itertools import count
from typing import Final

_TURNS: Final = 20
"""Turns of the loop that woken sleepers get before the clock moves on."""


class ManualClock:
    """Both times go on only with `advance`; sleepers wake in the order of their times."""

    def __init__(self, now: float = 1_764_000_000.0) -> None:
        self._offset = now
        self._monotonic = 0.0
        self._order = count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._offset + self._monotonic

    def monotonic(self) -> float:
        return self._monotonic

    def synchronise(self, broker_now: float) -> None:
        self._offset = broker_now - self._monotonic

    @property
    def sleepers(self) -> int:
        """How many tasks sleep now: a test can wait for the one it is going to wake."""
        return sum(not future.done() for _, _, future in self._sleepers)

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._monotonic + seconds, next(self._order), future))
        await future

    async def advance(self, seconds: float) -> None:
        """Let this many seconds pass; whoever is due meanwhile runs at its own time."""
        end = self._monotonic + seconds
        await _settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            due, _, future = heapq.heappop(self._sleepers)
            if future.done():
                continue
            self._monotonic = due
            future.set_result(None)
            await _settle()
        self._monotonic = end


async def _settle() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)
