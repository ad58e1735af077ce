"""Settlements of one queue. The large ones travel apart, so that they hold up no others."""

from __future__ import annotations

import asyncio

from async_processor.one_loop import OneLoop
from async_processor.transport.base import Delivery, Outcome, Settlement
from async_processor.transport.redis_sorted_set.entries import entry
from async_processor.transport.redis_sorted_set.link import Link
from async_processor.transport.redis_sorted_set.sending import Pending, Sender
from async_processor.transport.redis_sorted_set.settle_call import SettleCalls


class QueueSettlements(OneLoop):
    """Settles claims of one queue, for as long as the broker needs to take them."""

    def __init__(self, link: Link, queue_name: str) -> None:
        calls = SettleCalls(link, queue_name)
        self._link = link
        self._small = Sender(link, queue_name, calls)
        self._large = Sender(link, queue_name, calls)

    async def settle(self, delivery: Delivery, outcome: Outcome) -> Settlement:
        """Execute an outcome. Cancelling the caller does not take it back.

        GONE, too, when Redis refuses it or `flush` gives it up: then nothing was written, and the
        message returns to the queue when its lease ends.
        """
        future: asyncio.Future[Settlement] = self.loop.create_future()
        written = entry(delivery, outcome, self._link.clock.now())
        sender = self._large if written.large else self._small
        sender.send(Pending(delivery=delivery, entry=written, future=future))
        return await future  # cancelling it cancels nothing else

    async def flush(self, timeout: float) -> None:
        """Wait until everything is settled; after `timeout` seconds give the rest up."""
        await asyncio.gather(self._small.flush(timeout), self._large.flush(timeout))
