"""Keeps the dead-letter queue from growing for ever, when nobody looks after it."""

from __future__ import annotations

import random

from async_processor.clock import Clock
from async_processor.errors import BrokerUnavailable
from async_processor.telemetry.logs import get_logger
from async_processor.telemetry.metrics import Metrics
from async_processor.transport.base import Transport

_log = get_logger(__name__)


class LetterLimit:
    """Drops the oldest dead letters over `limit`, and counts them; 0 keeps them all.

    Every replica does; `interval` is in seconds.
    """

    def __init__(
        self, transport: Transport, clock: Clock, metrics: Metrics, *, limit: int, interval: float
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._metrics = metrics
        self._limit = limit
        self._interval = interval

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            if self._limit:
                try:
                    await self.enforce()
                except BrokerUnavailable as error:
                    _log.warning("dead_letters_not_trimmed", error=str(error))
            await self._clock.sleep(self._interval * random.uniform(0.8, 1.2))

    async def enforce(self) -> None:
        """Drop once what is too much; raises BrokerUnavailable."""
        dropped = await self._transport.trim_dead_letters(self._limit)
        if dropped:
            _log.error("dead_letters_dropped", count=dropped, limit=self._limit)
            self._metrics.dead_letters_dropped(dropped)
