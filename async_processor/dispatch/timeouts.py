"""Many waits with one timer: that of whoever is due first.

A timer for each request costs as much as asking its gate, and hardly one of them ever rings.
"""

from __future__ import annotations

import asyncio
import math

from async_processor.dispatch.ranking import Ranking


class Timeouts:
    """Bounds waits for futures; times are those of the running loop."""

    def __init__(self) -> None:
        self._waiting = Ranking[asyncio.Future[None]]()
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = math.inf
        """Early, when whoever was due first has left."""

    async def wait(self, future: asyncio.Future[None], timeout: float) -> None:
        """Wait for `future`, which is nobody else's to wait for.

        Raises:
            TimeoutError: it was not done within `timeout` seconds; now it is.
        """
        due = future.get_loop().time() + timeout
        self._waiting.add(future, due)
        if due < self._rings_at:
            self._ring_at(due)
        try:
            await future
        finally:
            self._waiting.discard(future)
            if not self._waiting:
                self._stop_timer()

    def _ring_at(self, due: float) -> None:
        self._stop_timer()
        self._timer, self._rings_at = asyncio.get_running_loop().call_at(due, self._ring), due

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._rings_at = None, math.inf

    def _ring(self) -> None:
        """End the waits that are over."""
        self._stop_timer()
        now = asyncio.get_running_loop().time()
        while self._waiting and self._waiting.earliest <= now:
            future = self._waiting.first()
            self._waiting.discard(future)
            if not future.done():
                future.set_exception(TimeoutError())
        if self._waiting:
            self._ring_at(self._waiting.earliest)
