"""Notices within a second that the sender of a running request has cancelled it."""

from __future__ import annotations

from typing import Final

from async_processor.clock import Clock
from async_processor.errors import BrokerUnavailable
from async_processor.lifecycle import few_at_a_time
from async_processor.settlement.held import Holdings, Interruption
from async_processor.telemetry.logs import get_logger
from async_processor.transport.base import Transport
from async_processor.wire.envelope import Envelope

INTERVAL: Final = 0.5
"""Seconds between two looks; with the answer's way it stays below the promised second."""

_log = get_logger(__name__)


class CancellationWatch:
    """Interrupts what is cancelled; the worker closes the call and answers CANCELLED."""

    def __init__(self, transport: Transport, holdings: Holdings, clock: Clock) -> None:
        self._transport = transport
        self._holdings = holdings
        self._clock = clock

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self._clock.sleep(INTERVAL)
            try:
                await self.look()
            except BrokerUnavailable as error:
                _log.warning("cancellations_not_read", error=str(error))

    async def look(self) -> None:
        """Look once; raises BrokerUnavailable."""
        deliveries = [
            held.delivery
            for held in self._holdings
            if isinstance(held.delivery.message, Envelope) and held.delivery.message.request_token
        ]
        if not deliveries:
            return
        async for token in few_at_a_time(await self._transport.cancelled(deliveries)):
            held = self._holdings.by_token(token)
            if held is not None:
                held.interrupt(Interruption.CANCELLED)
