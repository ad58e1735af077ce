"""Where requests wait for a gate in memory: one lot per gate, earliest deadline first."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from async_processor.admission.base import Gate
from async_processor.listeners import Subscriptions

LOOK_SECONDS: Final = 1.0
"""The first in a lot asks again this often although nobody tells of a change: there are sources
that are read as often as they should only while somebody asks."""


class ParkingLot:
    """Wakes one request at a time, so that a gate that opens a crack lets one through.

    Whoever is woken asks the gate again. If it has to wait on, the lot stays quiet until the gate
    changes or `LOOK_SECONDS` have passed; in every other case it calls `wake_next`. The lot listens
    to the gate as long as anybody is present.
    """

    def __init__(self, gate: Gate) -> None:
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._arrivals = itertools.count()
        self._present = 0
        self._next_look: asyncio.TimerHandle | None = None
        self._hears = Subscriptions(partial(gate.subscribe, self.wake_next))

    @property
    def is_empty(self) -> bool:
        return not self._present

    @contextmanager
    def presence(self) -> Iterator[None]:
        """A request is here, waiting or asking the gate in its turn."""
        if self.is_empty:
            self._open()
        self._present += 1
        try:
            yield
        finally:
            self._present -= 1
            if self.is_empty:
                self._close()

    def _open(self) -> None:
        self._hears.join()
        self._look_later()

    def _close(self) -> None:
        self._hears.leave()
        if self._next_look is not None:
            self._next_look.cancel()

    def _look(self) -> None:
        self.wake_next()
        self._look_later()

    def _look_later(self) -> None:
        self._next_look = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    async def wait(self, deadline: float, timeout: float) -> None:
        """Wait for a turn, at most `timeout` seconds; raises TimeoutError when none came.

        `deadline` (Unix time) is the request's rank.
        """
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (deadline, next(self._arrivals), turn))
        try:
            async with asyncio.timeout(timeout):
                await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self.wake_next()  # woken and cut off at once
            raise

    def wake_next(self) -> None:
        """Give the turn to the request with the earliest deadline."""
        while self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
