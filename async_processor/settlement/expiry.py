"""Answers requests whose deadline passed while they waited in the broker.

It needs no slot and no gate: a queue behind a closed gate still answers in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Final

from async_processor.clock import Clock
from async_processor.errors import BrokerUnavailable
from async_processor.lifecycle import uninterrupted
from async_processor.settlement.settle import Settler
from async_processor.settlement.triage import Triage
from async_processor.telemetry.logs import get_logger
from async_processor.transport.base import Delivery, Transport

LOOK_INTERVAL: Final = 1.0
"""Seconds between two looks at a queue whose earliest deadline lies further ahead."""

BATCH: Final = 128

_log = get_logger(__name__)


class Expirer:
    """Claims what has expired in one queue and settles it."""

    def __init__(
        self,
        transport: Transport,
        queue_name: str,
        *,
        triage: Triage,
        settler: Settler,
        clock: Clock,
    ) -> None:
        self._transport = transport
        self._queue_name = queue_name
        self._triage = triage
        self._settler = settler
        self._clock = clock

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            pause = LOOK_INTERVAL
            try:
                pause = await self.turn()
            except BrokerUnavailable as error:
                _log.warning("expiry_not_checked", queue_name=self._queue_name, error=str(error))
            await self._clock.sleep(pause)

    async def turn(self) -> float:
        """Answer one batch; returns seconds until the next look. Raises BrokerUnavailable."""
        earliest = await self._transport.next_expiry(self._queue_name)
        if earliest is None:
            return LOOK_INTERVAL
        left = earliest - self._clock.now()
        if left > 0:
            return min(left, LOOK_INTERVAL)
        deliveries = await self._transport.claim_expired(self._queue_name, BATCH)
        await uninterrupted(self._answer(deliveries))
        # None although one was due: another replica was quicker, or the clocks differ a little.
        return 0.0 if deliveries else 0.05

    async def _answer(self, deliveries: Sequence[Delivery]) -> None:
        cancelled = await cancelled_among(self._transport, deliveries)
        await asyncio.gather(
            *(self._settle(delivery, delivery.token in cancelled) for delivery in deliveries)
        )

    async def _settle(self, delivery: Delivery, cancelled: bool) -> None:
        decision = self._triage.examine_expired(
            delivery, now=self._clock.now(), cancelled=cancelled
        )
        await self._settler.settle(delivery, decision, dispatched=False)


async def cancelled_among(transport: Transport, deliveries: Sequence[Delivery]) -> Collection[str]:
    """The claim tokens of the cancelled; none while the broker is away.

    The deliveries are leased already and must go on. A cancellation that is missed here is seen
    by the next look.
    """
    try:
        return await transport.cancelled(deliveries)
    except BrokerUnavailable as error:
        _log.warning("cancellations_not_read", error=str(error))
        return ()
