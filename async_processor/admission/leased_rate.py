"""Starts at the rate that a planner leases to all replicas together (`redis-leased-rate`).

Permits come out of a bucket that stands in Redis, a tenth of a second's worth at a time, so that a
high rate costs few commands. They are taken only while work waits, and lapse when they are not
used: what is kept here must not become a second bucket. A lease that is missing, wrong or over, and
a Redis that does not answer, close the gate; a rate of 0 pauses it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

from async_processor.admission.base import (
    Candidate,
    Continue,
    GateState,
    Reason,
    Refuse,
    Verdict,
    WithoutLots,
)
from async_processor.admission.live_number import LiveNumber
from async_processor.admission.tickets import LocalTicket
from async_processor.clock import Clock
from async_processor.errors import BrokerRefused, BrokerUnavailable
from async_processor.lifecycle import Watch
from async_processor.listeners import Leave, Listeners
from async_processor.redis_io.leased_bucket import Draw, LeasedBucket
from async_processor.telemetry.logs import get_logger

BATCH_SECONDS: Final = 0.1
"""As many permits are taken at once as the rate allows in this time."""

LAPSE_SECONDS: Final = 0.5
"""After this a permit that nobody used is gone."""

LOOK_SECONDS: Final = 0.5
"""At most between two looks at the lease."""

SHORTEST_PAUSE: Final = 0.02
LONGEST_PAUSE: Final = 0.25
"""Seconds between two draws, however long the next permit takes: the rate may have changed."""

_log = get_logger(__name__)


class LeaseGauges(Protocol):
    """Shows the lease: requests per second, and until when it holds in Unix seconds."""

    def leased(self, *, rps: float, valid: bool, valid_until: float) -> None: ...


class LeasedRateGate(WithoutLots):
    """One queue's or pool's gate over a bucket. Only its side task talks to the bucket."""

    def __init__(
        self,
        bucket: LeasedBucket,
        gauges: LeaseGauges,
        *,
        workers: LiveNumber,
        clock: Clock,
        watch: Watch,
    ) -> None:
        self._bucket = bucket
        self._gauges = gauges
        self._workers = workers
        self._clock = clock
        self._watch = watch
        self._task: asyncio.Task[None] | None = None
        self._wanted = asyncio.Event()
        """Work waits and there is no permit; who waits says so once, until there are some."""
        self._permits = 0
        self._lapse_at = -math.inf
        self._rate = 0.0
        self._over_at = -math.inf
        self._read = False
        self._fault = "not read yet"
        self._held_back = 0
        self._wakes = Listeners[[]]()
        gauges.leased(rps=0.0, valid=False, valid_until=0.0)

    async def start(self) -> None:
        if self._task is None:
            self._task = self._watch.spawn(f"leased rate {self._bucket.name}", self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def budget(self) -> float:
        """Whether anything may start at all: a rate is no share of the workers."""
        return 1.0 if self._rate > 0 and self._holds() else 0.0

    def permits(self, workers: int) -> int:
        left = self._left()
        if not left:
            self._wanted.set()
        return min(workers, left)

    async def admit(self, candidate: Candidate) -> Verdict:  # noqa: ARG002 - all are alike
        if self._left():
            self._permits -= 1
            return Continue(ticket=LocalTicket(on_refund=partial(self._refund, self._held_back)))
        self._held_back += 1
        self._wanted.set()
        reason = Reason.GATE_CLOSED if self._read else Reason.ERROR
        return Refuse(reason=reason, message=self._reason())

    def subscribe(self, wake: Callable[[], None]) -> Leave:
        return self._wakes.add(wake)

    def state(self) -> GateState:
        return GateState(
            type="redis-leased-rate",
            budget=self.budget(),
            available=self._read,
            reason=self._reason() if not self._left() else "",
        )

    def _holds(self) -> bool:
        """Whether the lease does."""
        return self._clock.monotonic() < self._over_at

    def _left(self) -> int:
        usable = self._clock.monotonic() < min(self._lapse_at, self._over_at)
        return self._permits if usable else 0

    def _refund(self, held_back_before: int) -> None:
        """A permit that was not used goes the way of the others: it helps now, or lapses."""
        self._permits += 1
        if self._held_back != held_back_before:
            self._wakes.tell()

    async def _run(self) -> None:
        while True:
            pause = await self._draw()
            await self._clock.sleep(pause)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS - pause):
                    await self._wanted.wait()

    async def _draw(self) -> float:
        """Take permits if somebody waits for them; returns how long to leave the bucket alone."""
        wanted = self._batch() if self._wanted.is_set() else 0
        self._wanted.clear()
        asked_at, before = self._clock.monotonic(), self.budget()
        try:
            draw = await self._bucket.draw(wanted)
        except (BrokerUnavailable, BrokerRefused) as error:
            self._lose(str(error))
            return LONGEST_PAUSE
        self._take(draw, asked_at)
        if wanted and not draw.permits and self.budget():
            self._wanted.set()  # the next permit takes longer than this pause
        if draw.permits or self.budget() > before:
            self._wakes.tell()
        return min(max(draw.wait, SHORTEST_PAUSE), LONGEST_PAUSE)

    def _batch(self) -> int:
        return max(1, min(self._workers.value, math.ceil(self._rate * BATCH_SECONDS)))

    def _take(self, draw: Draw, asked_at: float) -> None:
        fault = f"the lease does not hold: {draw.refused}" if draw.refused else ""
        if fault != self._fault:
            _log.info("drain_lease", control_key=self._bucket.name, fault=fault, rps=draw.rate)
        self._read, self._fault = True, fault
        self._rate, self._over_at = draw.rate, asked_at + draw.left
        if draw.permits or not draw.rate:
            self._permits, self._lapse_at = draw.permits, asked_at + LAPSE_SECONDS
        self._gauges.leased(rps=draw.rate, valid=not draw.refused, valid_until=draw.valid_until)

    def _lose(self, reason: str) -> None:
        if reason != self._fault:
            _log.warning("drain_lease_unreadable", control_key=self._bucket.name, reason=reason)
        self._read, self._fault = False, reason
        self._rate, self._permits, self._over_at = 0.0, 0, -math.inf
        self._gauges.leased(rps=0.0, valid=False, valid_until=0.0)

    def _reason(self) -> str:
        if self._fault:
            return self._fault
        if not self._holds():
            return "the lease does not hold: it has expired"
        if not self._rate:
            return "the leased rate is 0: paused"
        return f"the leased rate of {self._rate:g} per second has no permit left"
