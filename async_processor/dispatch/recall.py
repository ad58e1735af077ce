"""Calls parked messages of one queue back as soon as there is room for them, and no sooner.

Room is told by those who made messages wait: the gates that refused them, and the lanes that were
full. A gate names the lot in which it has made room, and that lot is looked at. A lane that has
room has it for any of the lots that wait for lanes: they are looked at in turn, a bounded number at
once, until none of them gets any more back. Whoever parks a message here says so too, for room may
have been made just before. Every interval all lots are looked at, for room may come unheard: a
holder died, another replica parked. A lot that nobody here knows (its gate is gone from the
configuration) goes back to the queue whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections import Counter
from collections.abc import Collection
from functools import partial
from typing import Final

from async_processor.admission.base import OVERFLOW_LOT
from async_processor.dispatch.lane_lots import LaneLots
from async_processor.dispatch.revisits import Revisits
from async_processor.dispatch.route import Route
from async_processor.errors import BrokerUnavailable
from async_processor.listeners import Subscriptions
from async_processor.telemetry.logs import get_logger
from async_processor.transport.base import Transport

REST: Final = 0.01
"""Seconds between two looks at the lots that have room: what was just called back has mostly been
admitted by then, and no longer counts as room."""

LANE_LOTS_AT_ONCE: Final = 32
"""Lots that are looked at in one turn because a lane has room."""

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
        self._revisits = Revisits(longest=interval)
        self._lane_lots = LaneLots()
        self._sweep_at = -math.inf
        """When all lots are to be looked at, in monotonic seconds: at once, for those left by
        others."""
        self._told = asyncio.Event()
        self._hears = Subscriptions(
            partial(route.gate.on_room, self._has_room),
            partial(route.pool.gate.on_room, self._has_room),
            partial(route.pool.merge.on_room, self._lane_has_room),
            partial(route.parked.add, self._parked),
        )

    def _has_room(self, lot: str) -> None:
        self._revisits.forget(lot)
        self._roomy.add(lot)
        self._told.set()

    def _lane_has_room(self) -> None:
        """Of little interest while nobody waits for it, and told with each request."""
        self._lane_lots.begin_round()
        if self._lane_lots.to_look_at:
            self._told.set()

    def _parked(self, lot: str) -> None:
        if lot in self._revisits:
            self._revisits.in_vain(lot, self._clock.monotonic())
            self._told.set()
        else:
            self._has_room(lot)

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
        now = self._clock.monotonic()
        lots, self._roomy = self._roomy | self._revisits.due(now), set()
        self._told.clear()
        if now >= self._sweep_at:
            # Replicas that start together should not sweep together for ever.
            self._sweep_at = now + self._interval * random.uniform(0.8, 1.2)
            lots.update(await self._transport.lots(self._queue_name))
        coming = Counter[str]()
        await self._look(lots, coming)
        await self._look(self._lane_lots.take(LANE_LOTS_AT_ONCE), coming)
        if any(lot in self._lane_lots for lot in coming):
            self._lane_lots.begin_round()
        if self._lane_lots.to_look_at:
            self._told.set()

    async def _wait(self) -> None:
        """Until somebody tells of room, or it is time to look by oneself."""
        look_at = min(self._sweep_at, self._revisits.next_at)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(look_at - self._clock.monotonic()):
                await self._told.wait()

    async def _look(self, lots: Collection[str], coming: Counter[str]) -> None:
        """Call back what there is room for; `coming` counts it."""
        rooms = await asyncio.gather(*(self._gates_room(lot) for lot in lots))
        for lot, room in zip(lots, rooms, strict=True):
            if room is None or lot.startswith(OVERFLOW_LOT):
                room = self._lane_room(lot, room or 0, coming)  # noqa: PLW2901
            await self._recall(lot, room, coming)

    async def _gates_room(self, lot: str) -> int | None:
        """That of the gate with the least; None: no gate knows the lot."""
        asked = [await gate.room(lot) for gate in (self._route.gate, self._route.pool.gate)]
        return min((room for room in asked if room is not None), default=None)

    def _lane_room(self, lot: str, covered: int, coming: Counter[str]) -> int | None:
        merge, queue = self._route.pool.merge, self._route.queue
        room = merge.lot_room(queue, lot, covered, coming)
        if room is not None:
            self._lane_lots.add(lot)
        return room

    async def _recall(self, lot: str, room: int | None, coming: Counter[str]) -> None:
        """`room` is None when nobody knows the lot."""
        limit = WHOLE_LOT if room is None else room
        count = await self._transport.recall(self._queue_name, lot, limit) if limit else 0
        if count:
            coming[lot] += count
        if count and room is None:
            _log.info("lot_returned", queue_name=self._queue_name, lot=lot, count=count)
        if count and count == room:
            self._revisits.add(lot, self._clock.monotonic())
        else:
            self._revisits.looked_at(lot)
        if count < limit:
            self._lane_lots.discard(lot)
