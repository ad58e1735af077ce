"""What Cloud Monitoring says of each subscription, asked no more often than it changes."""

from __future__ import annotations

from typing import Final

from async_processor.clock import Clock
from async_processor.errors import (
    AsyncProcessorError,
    BacklogUnknown,
    BrokerRefused,
    ConfigurationError,
)
from async_processor.google_io.monitoring import Monitor
from async_processor.transport.base import Backlog

FRESH: Final = 10.0
"""Seconds for which an answer, and a refusal too, is not asked for again."""

_Told = Backlog | AsyncProcessorError


class Depths:
    """By subscription. `monitor` is None where nobody can be asked."""

    def __init__(self, monitor: Monitor | None, clock: Clock) -> None:
        self._monitor = monitor
        self._clock = clock
        self._told: dict[str, tuple[float, _Told]] = {}

    async def read(self, subscription: str) -> Backlog:
        """Raises BacklogUnknown, which is a BrokerUnavailable."""
        asked_at, told = self._told.get(subscription, (-FRESH, None))
        now = self._clock.monotonic()
        if told is None or now - asked_at >= FRESH:
            told = await self._ask(subscription)
            self._told[subscription] = (now, told)
        if isinstance(told, Backlog):
            return told
        raise told

    async def _ask(self, subscription: str) -> _Told:
        if self._monitor is None:
            return BacklogUnknown("the Pub/Sub emulator does not tell how much waits")
        try:
            depth = await self._monitor.depth(subscription)
        except (BacklogUnknown, BrokerRefused, ConfigurationError) as error:
            return BacklogUnknown(str(error))
        return Backlog(waiting=depth.messages, oldest_age=depth.oldest_age)

    async def close(self) -> None:
        if self._monitor is not None:
            await self._monitor.close()
