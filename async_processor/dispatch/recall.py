"""Calls parked messages of one queue back as soon as there is room for them, and no sooner.

Room is told by those who made messages wait: the gates that refused them, and the lanes that were
full. Whoever makes room says so, and that lot is looked at; every interval all lots are, for room
may come unheard: a holder died, time has passed. A lot that nobody here knows (its gate is gone
from the configuration) goes back to the queue whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections.abc import Collection
from functools import partial
from typing import Final

from async_processor.admission.base import OVERFLOW_LOT
from async_processor.dispatch.route import Route
from async_processor.errors import BrokerUnavailable
from async_processor.listeners import Subscriptions
from async_processor.telemetry.logs import get_logger
from async_processor.transport.base import Transport

REST: Final = 0.01
"""Seconds between two looks at the lots that have room: what was just called back has mostly been
admitted by then, and no longer counts as room."""

BROKER_PAUSE: Final = 1.0
"""Seconds at most between two tries while the broker is away."""

WHOLE_LOT: Final = 1_000_000

_log = get_logger(__name__)


class Recaller:
    """One queue's. `interval` is in seconds. Its state is written by callbacks and `run`."""

    def __init__(self, route: Route, transport: Transport, *, interval: float) -> None:
        self._route = route
        self._queue_name = route.queue.queue_name
        self._transport = transport
        self._clock = transport.clock
        self._interval = interval
        self._roomy: set[str] = set()
        """Lots in which there may be room."""
        self._sweep_at = -math.inf
        """When all lots are to be looked at, in monotonic seconds: at once, for those left by
        others."""
        self._told = asyncio.Event()
        self._hears = Subscriptions(
            partial(route.gate.on_room, self._has_room),
            partial(route.pool.gate.on_room, self._has_room),
            partial(route.pool.merge.on_room, self._lane_has_room),
        )

    def _has_room(self, lot: str) -> None:
        self._roomy.add(lot)
        self._told.set()

    def _lane_has_room(self) -> None:
        self._sweep_at = -math.inf
        self._told.set()

    async def run(self) -> None:
        """Run until cancelled."""
        self._hears.join()
        try:
            while True:
                await self._turn_or_pause()
                await self._clock.sleep(REST)
                await self._wait()
        finally:
            self._hears.leave()

    async def _turn_or_pause(self) -> None:
        try:
            await self.turn()
        except BrokerUnavailable as error:
            self._sweep_at = -math.inf
            _log.warning("nothing_recalled", queue_name=self._queue_name, error=str(error))
            await self._clock.sleep(random.uniform(0.1, BROKER_PAUSE))

    async def turn(self) -> None:
        """Look once where there may be room. Raises BrokerUnavailable."""
        lots: Collection[str]
        lots, self._roomy = self._roomy, set()
        self._told.clear()
        now = self._clock.monotonic()
        if now >= self._sweep_at:
            # Replicas that start together should not sweep together for ever.
            self._sweep_at = now + self._interval * random.uniform(0.8, 1.2)
            lots = await self._transport.lots(self._queue_name)
        rooms = await asyncio.gather(*(self._room(lot) for lot in lots))
        for lot, room in zip(lots, rooms, strict=True):
            await self._recall(lot, room)

    async def _wait(self) -> None:
        """Until somebody tells of room, or all lots are to be looked at."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._sweep_at - self._clock.monotonic()):
                await self._told.wait()

    async def _room(self, lot: str) -> int | None:
        """How many may come back; None when nobody knows the lot."""
        room = await self._gates_room(lot)
        if room is not None and not lot.startswith(OVERFLOW_LOT):
            return room
        return self._route.pool.merge.lot_room(self._route.queue, lot, room or 0)

    async def _gates_room(self, lot: str) -> int | None:
        for gate in (self._route.gate, self._route.pool.gate):
            room = await gate.room(lot)
            if room is not None:
                return room
        return None

    async def _recall(self, lot: str, room: int | None) -> None:
        if room is None:
            count = await self._transport.recall(self._queue_name, lot, WHOLE_LOT)
            _log.info("lot_returned", queue_name=self._queue_name, lot=lot, count=count)
        elif room and await self._transport.recall(self._queue_name, lot, room) == room:
            self._has_room(lot)  # there may be more messages, and soon more room
