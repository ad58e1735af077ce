"""Takes work out of one queue: first the slot, then the message.

A turn waits for work, for the queue's gate, then for slots of its pool, and claims at most as many
messages as it got slots. What cannot run stays in the broker for other replicas, in the order of
the deadlines.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

from async_processor.dispatch.route import Route
from async_processor.dispatch.seat import Seat
from async_processor.dispatch.stay import Stay
from async_processor.dispatch.suspects import Suspects, is_suspect
from async_processor.errors import BrokerUnavailable
from async_processor.lifecycle import few_at_a_time, uninterrupted
from async_processor.listeners import Subscriptions
from async_processor.one_loop import OneLoop
from async_processor.settlement.decision import Ending
from async_processor.settlement.expiry import cancelled_among
from async_processor.settlement.held import Held, Holdings, PhaseGauges
from async_processor.telemetry.logs import get_logger
from async_processor.transport.base import Delivery, Transport

LOOK_INTERVAL: Final = 1.0
"""Seconds: a wait for work or for seats is looked at again this often, whatever wakes it."""

GATE_PAUSE: Final = 0.5
"""Seconds at most between a gate's refusal and the next claim, or two looks at a closed gate."""

CLAIM_LIMIT: Final = 256
"""Messages a claim may ask for."""

FIRST_CLAIM: Final = 8
"""The same after a wait for work: mostly one has come, and all seats beyond those that are needed
would be bid for and left again on its way. Where there are more the next claim follows at once."""

EMPTY_HANDED_PAUSE: Final = 0.05
"""Seconds at most after the second claim in a row that found nothing although there was work:
other replicas are quicker, or what is left are suspects that must wait for their turn."""

BROKER_PAUSE: Final = 1.0
"""Seconds at most between two tries while the broker is away."""

_log = get_logger(__name__)


class Processor(Protocol):
    """A worker, or one whose requests are traced."""

    async def process(self, stay: Stay) -> Ending | None:
        """Bring a delivery to its end; returns which, None when its lease was lost."""
        ...


class Intake(OneLoop):
    """Feeds one queue's messages to the workers."""

    def __init__(
        self,
        route: Route,
        transport: Transport,
        worker: Processor,
        holdings: Holdings,
        *,
        suspects: Suspects,
        gauges: PhaseGauges,
    ) -> None:
        self._route = route
        self._queue_name = route.queue.queue_name
        self._transport = transport
        self._clock = transport.clock
        self._worker = worker
        self._holdings = holdings
        self._suspects = suspects
        self._gauges = gauges
        self._gate_changed = asyncio.Event()
        self._refused = False
        self._more = False
        """There is probably work: the last claim got all it asked for, or a look has seen some that
        the gate kept back."""
        self._empty_handed = False
        """The last claim found nothing."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._hears = Subscriptions(
            partial(route.gate.subscribe, self._gate_changed.set),
            partial(route.pool.gate.subscribe, self._gate_changed.set),
        )

    async def run(self) -> None:
        """Run until cancelled; what was claimed by then goes on."""
        self._hears.join()
        try:
            while True:
                await self._turn_or_pause()
        finally:
            self._hears.leave()

    async def _turn_or_pause(self) -> None:
        try:
            await self._turn()
        except BrokerUnavailable as error:
            _log.warning("nothing_claimed", queue_name=self._queue_name, error=str(error))
            await self._clock.sleep(random.uniform(0.1, BROKER_PAUSE))

    async def _turn(self) -> None:
        looked = not self._more
        if looked and not await self._sees_work():
            return
        self._more = False
        permits = await self._permits()
        if not permits:
            self._more = looked
            return
        wanted = min(permits, FIRST_CLAIM if looked else CLAIM_LIMIT)
        seats = await self._route.pool.acquire(self._route.queue, wanted, LOOK_INTERVAL)
        seats = self._still_permitted(seats)
        if not seats:
            return
        claimed = await uninterrupted(self._claim(seats))
        self._more = claimed == len(seats)
        if not claimed and self._empty_handed:
            await self._clock.sleep(random.uniform(0.2, 1.0) * EMPTY_HANDED_PAUSE)
        self._empty_handed = not claimed

    async def _sees_work(self) -> bool:
        """Whether the queue holds a message; waits for one."""
        queued = await self._transport.wait_for_work(self._queue_name, LOOK_INTERVAL)
        self._route.backlog.queued = queued
        return queued

    def _still_permitted(self, seats: Sequence[Seat]) -> Sequence[Seat]:
        """Of the seats just got, those that the gate still lets start; the wait was long maybe."""
        permits = self._route.gate.permits(self._route.pool.workers)
        _leave(seats[permits:])
        return seats[:permits]

    async def _permits(self) -> int:
        """How many the queue's gate lets start now, after a while of waiting if that is none."""
        gate, workers = self._route.gate, self._route.pool.workers
        permits = gate.permits(workers)
        if permits > 0 and not self._refused:
            return permits
        self._gate_changed.clear()
        self._refused = False
        with suppress(TimeoutError):
            async with asyncio.timeout(GATE_PAUSE):
                await self._gate_changed.wait()
        return gate.permits(workers)

    async def _claim(self, seats: Sequence[Seat]) -> int:
        """Claim a message for each seat and start it; returns how many it got."""
        deliveries: Sequence[Delivery] = ()
        suspects = self._suspects.take(self._queue_name, self._clock.monotonic())
        try:
            deliveries = await self._transport.claim(
                self._queue_name, len(seats), suspects=suspects
            )
        finally:
            if suspects and not any(map(is_suspect, deliveries)):
                self._suspects.leave()
            _leave(seats[len(deliveries) :])
        self._route.backlog.queued = False  # until the next look, which is soon
        await self._start_all(deliveries, seats)
        return len(deliveries)

    async def _start_all(self, deliveries: Sequence[Delivery], seats: Sequence[Seat]) -> None:
        claimed_at = self._clock.monotonic()
        held = [Held(delivery, self._gauges, claimed_at=claimed_at) for delivery in deliveries]
        for each in held:
            self._holdings.add(each)  # from here on the lease is kept
            if is_suspect(each.delivery):
                self._suspects.hold(each)
        cancelled = await cancelled_among(self._transport, deliveries)
        async for each, seat in few_at_a_time(zip(held, seats, strict=False)):
            token = each.delivery.token
            self._start(Stay(each, self._route, seat, cancelled=token in cancelled))

    def _start(self, stay: Stay) -> None:
        published_at = stay.held.delivery.published_at
        if published_at is not None:
            self._route.metrics.message_latency((self._clock.now() - published_at) * 1000)
        task = self.loop.create_task(self._run(stay))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # Nothing is lost by it: the lease ends, or is freed when this process stops.
            _log.error("worker_died", queue_name=self._queue_name, exc_info=error)

    async def _run(self, stay: Stay) -> None:
        try:
            if await self._worker.process(stay) is Ending.REFUSED:
                self._refused = True
        finally:
            stay.seat.leave()
            if is_suspect(stay.held.delivery):
                self._suspects.leave()
            self._holdings.remove(stay.held)


def _leave(seats: Sequence[Seat]) -> None:
    for seat in seats:
        seat.leave()
