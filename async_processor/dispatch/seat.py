"""A request's place in its pool, from the bid to the settled outcome."""

from __future__ import annotations

import asyncio
from enum import IntEnum, auto
from typing import Protocol

from async_processor.dispatch.merge.base import Ready
from async_processor.dispatch.settings import QueueSettings
from async_processor.timeouts import Timeouts


class Stand(IntEnum):  # its members are keys on the way of each request: ints are quickly hashed
    """Where a seat's request stands."""

    CLAIMING = auto()
    """It is being claimed and admitted, ahead of a free slot."""
    LANE = auto()
    """It waits for its turn."""
    SLOT = auto()
    """It has a worker's slot and is not dispatched yet."""
    RUNNING = auto()
    """It is dispatched; the pool's gate counts it."""


class Seats(Protocol):
    """What a seat needs of its pool."""

    @property
    def timeouts(self) -> Timeouts:
        """Of those that wait for their turn."""
        ...

    def moved(self, seat: Seat, before: Stand | None, after: Stand | None) -> None: ...

    def stands_in_lane(self, seat: Seat, ready: Ready) -> str | None: ...

    def leaves_lane(self, ready: Ready) -> None: ...


class Seat:
    """Made by the pool; moved on by the request's worker; left exactly once, whatever happens."""

    __slots__ = ("_pool", "_turn", "queue", "ready", "stand")

    def __init__(self, pool: Seats, queue: QueueSettings, stand: Stand) -> None:
        self.queue = queue
        self.stand: Stand | None = stand
        self.ready: Ready | None = None
        """What its request was when it last waited for its turn."""
        self._pool = pool
        self._turn: asyncio.Future[None] | None = None
        pool.moved(self, None, stand)

    @property
    def has_slot(self) -> bool:
        """Whether the request may be dispatched as far as the pool is concerned."""
        return self.stand is Stand.SLOT

    async def wait_for_turn(self, ready: Ready, timeout: float) -> str | None:
        """Wait for a slot, or until the request is to be looked at again (see `has_slot`).

        Returns the lot to wait in when the lane is full.

        Raises:
            TimeoutError: there was neither within `timeout` seconds.
        """
        lot = self._pool.stands_in_lane(self, ready)
        self.ready = ready
        if lot is not None:
            return lot
        timeouts = self._pool.timeouts
        self._turn = timeouts.loop.create_future()
        self._move(Stand.LANE)
        try:
            with timeouts.limit(timeout):
                await self._turn
        finally:
            self._pool.leaves_lane(ready)
        return None

    def take_turn(self) -> None:
        """The pool gives the seat a slot."""
        self._move(Stand.SLOT)
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)

    def look_again(self) -> bool:
        """The request may be better off now: it gives its place in the lane up and asks again.

        False when it is on its way already.
        """
        if self.stand is not Stand.LANE or self._turn is None or self._turn.done():
            return False
        self._move(Stand.CLAIMING)
        self._turn.set_result(None)
        return True

    def dispatched(self) -> None:
        """The pool's gate has admitted the request and counts it from now on."""
        self._move(Stand.RUNNING)

    def leave(self) -> None:
        """The request is settled, or was never claimed. A second call does nothing."""
        if self.stand is not None:
            self._move(None)

    def _move(self, stand: Stand | None) -> None:
        before, self.stand = self.stand, stand
        self._pool.moved(self, before, stand)
