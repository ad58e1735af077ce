"""Keeps the leases of everything that runs here, in one call a third of a lease apart."""

from __future__ import annotations

from collections.abc import Mapping

from async_processor.clock import Clock
from async_processor.errors import BrokerUnavailable
from async_processor.lifecycle import few_at_a_time
from async_processor.settlement.held import Holdings, Interruption, Phase
from async_processor.telemetry.logs import get_logger
from async_processor.telemetry.metrics import QueueMetrics
from async_processor.transport.base import Transport

_log = get_logger(__name__)


class LeaseKeeper:
    """Extends leases; a delivery whose lease is lost is cut off, for it runs elsewhere now."""

    def __init__(
        self,
        transport: Transport,
        holdings: Holdings,
        clock: Clock,
        metrics: Mapping[str, QueueMetrics],
        *,
        lease_ttl: float,
    ) -> None:
        self._transport = transport
        self._holdings = holdings
        self._clock = clock
        self._metrics = metrics
        self._interval = lease_ttl / 3

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self._clock.sleep(self._interval)
            try:
                await self.extend()
            except BrokerUnavailable as error:
                # What was sent goes on: the broker is away for everybody, or the lease ends and
                # the fence keeps this process from writing.
                _log.warning("leases_not_extended", error=str(error))

    async def extend(self) -> None:
        """Extend every lease once; raises BrokerUnavailable."""
        deliveries = [held.delivery for held in self._holdings]
        if not deliveries:
            return
        async for token in few_at_a_time(await self._transport.extend(deliveries)):
            self._lost(token)

    def _lost(self, token: str) -> None:
        held = self._holdings.by_token(token)
        # While it settles, "lost" only means that the settling came first.
        if held is not None and held.phase is not Phase.SETTLING:
            _log.warning("lease_lost", queue_name=held.delivery.queue_name)
            self._metrics[held.delivery.queue_name].lease_lost()
            held.interrupt(Interruption.LEASE_LOST)
