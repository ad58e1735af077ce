"""Many limits in time with one timer: that of whoever is due first.

A timer for each request costs as much as asking its gate, and hardly one of them ever rings.
"""

from __future__ import annotations

import asyncio
import math
from types import TracebackType

from async_processor.one_loop import OneLoop
from async_processor.ranking import Ranking


class Timeouts(OneLoop):
    """Limits the time that tasks of one loop take; times are that loop's."""

    def __init__(self) -> None:
        self._running = Ranking[Limit]()
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = math.inf
        """Early, when whoever was due first has left."""

    def limit(self, seconds: float) -> Limit:
        """What is done `with` it raises TimeoutError if it takes longer."""
        return Limit(self, seconds)

    def begins(self, limit: Limit, due: float) -> None:
        """Called by a limit whose time runs from now on."""
        self._running.add(limit, due)
        if due < self._rings_at:
            self._ring_at(due)

    def ends(self, limit: Limit) -> None:
        """Called by a limit that is over."""
        self._running.discard(limit)
        if not self._running:
            self._stop_timer()

    def _ring_at(self, due: float) -> None:
        self._stop_timer()
        self._timer, self._rings_at = self.loop.call_at(due, self._ring), due

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._rings_at = None, math.inf

    def _ring(self) -> None:
        """Cut off whose time is up."""
        self._stop_timer()
        now = self.loop.time()
        while self._running and self._running.earliest <= now:
            limit = self._running.first()
            self._running.discard(limit)
            limit.expire()
        if self._running:
            self._ring_at(self._running.earliest)


class Limit:
    """Like `asyncio.timeout`: the task is cancelled, and a cancellation that comes from elsewhere
    at the same time is not taken for the end of the time."""

    __slots__ = ("_cancelling", "_seconds", "_task", "_timeouts", "expired")

    _task: asyncio.Task[object]
    _cancelling: int

    def __init__(self, timeouts: Timeouts, seconds: float) -> None:
        self._timeouts = timeouts
        self._seconds = seconds
        self.expired = False
        """Whether the time was up before it was over."""

    def __enter__(self) -> Limit:
        loop = self._timeouts.loop
        task = asyncio.current_task(loop)
        assert task is not None  # noqa: S101 - nothing else can be cut off
        self._task, self._cancelling = task, task.cancelling()
        self._timeouts.begins(self, loop.time() + self._seconds)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._timeouts.ends(self)
        cut_off = self.expired and self._task.uncancel() <= self._cancelling
        if cut_off and isinstance(error, asyncio.CancelledError):
            raise TimeoutError from error

    def expire(self) -> None:
        """The time is up."""
        self.expired = True
        self._task.cancel()
