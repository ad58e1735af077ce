"""Takes back what dead processes held, and brings back what is due for a retry.

Every replica does both; the broker's scripts make sure that a message moves once.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from async_processor.clock import Clock
from async_processor.errors import BrokerUnavailable
from async_processor.telemetry.logs import get_logger
from async_processor.telemetry.metrics import QueueMetrics
from async_processor.transport.base import Transport

PROMOTION_INTERVAL: Final = 1.0
"""Seconds between two looks at the retry queue, for another replica may add an earlier retry."""

_log = get_logger(__name__)


class Reaper:
    """Puts messages with an expired lease back into their queues."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        metrics: Mapping[str, QueueMetrics],
        *,
        interval: float,
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._metrics = metrics
        self._interval = interval

    async def run(self) -> None:
        """Run until cancelled; looks at once, for the process before this one may have died."""
        while True:
            for queue_name in tuple(self._metrics):  # a reload may add queues meanwhile
                try:
                    await self.reclaim(queue_name)
                except BrokerUnavailable as error:
                    _log.warning("leases_not_reclaimed", queue_name=queue_name, error=str(error))
            # Replicas that start together should not look together for ever.
            await self._clock.sleep(self._interval * random.uniform(0.8, 1.2))

    async def reclaim(self, queue_name: str) -> None:
        """Take back once; raises BrokerUnavailable."""
        count = await self._transport.reclaim(queue_name)
        if count:
            _log.warning("leases_reclaimed", queue_name=queue_name, count=count)
            self._metrics[queue_name].leases_reclaimed(count)


class RetryPromoter:
    """Returns due retries to their own queues; those of this process to the moment."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._clock = transport.clock
        self._earliest = math.inf
        """When the first of those is due (Unix time) that have been written since the last look
        began; of all others the broker tells."""
        self._sooner = asyncio.Event()

    def expect(self, due_at: float) -> None:
        """A retry that has been written will be due at this Unix time."""
        if due_at < self._earliest:
            self._earliest = due_at
            self._sooner.set()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            pause = PROMOTION_INTERVAL
            try:
                pause = await self.promote()
            except BrokerUnavailable as error:
                _log.warning("retries_not_promoted", error=str(error))
            await self._wait(pause)

    async def promote(self) -> float:
        """Promote what is due; returns seconds until the next look. Raises BrokerUnavailable."""
        self._earliest = math.inf
        due = await self._transport.promote_retries()
        now = self._clock.now()
        return max(min(self._earliest, due or math.inf, now + PROMOTION_INTERVAL) - now, 0.0)

    async def _wait(self, pause: float) -> None:
        """Pause, unless a retry turns up that is due before."""
        until = self._clock.now() + pause
        while (left := until - self._clock.now()) > 0:
            self._sooner.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._sooner.wait()
            until = min(until, self._earliest)
