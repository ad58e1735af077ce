"""Takes back what dead processes held, and brings back what is due for a retry.

Every replica does both; the broker's scripts make sure that a message moves once.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

from async_processor.clock import Clock
from async_processor.errors import BrokerUnavailable
from async_processor.telemetry.logs import get_logger
from async_processor.telemetry.metrics import QueueMetrics
from async_processor.transport.base import Transport

PROMOTION_INTERVAL: Final = 0.5
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
    """Returns due retries to their own queues."""

    def __init__(self, transport: Transport, clock: Clock) -> None:
        self._transport = transport
        self._clock = clock

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            pause = PROMOTION_INTERVAL
            try:
                pause = await self.promote()
            except BrokerUnavailable as error:
                _log.warning("retries_not_promoted", error=str(error))
            await self._clock.sleep(pause)

    async def promote(self) -> float:
        """Promote what is due; returns seconds until the next look. Raises BrokerUnavailable."""
        due = await self._transport.promote_retries()
        if due is None:
            return PROMOTION_INTERVAL
        return min(max(due - self._clock.now(), 0.0), PROMOTION_INTERVAL)
