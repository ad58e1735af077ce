"""A pool of workers: first the slot, then the message.

The pool owns its slots. An intake bids for some and gets them in the merge policy's order, no more
than the pool's gate lets start; what it does not use it gives back. A slot is held from the bid
until the request's outcome is settled, so that a claimed message never waits for a worker and the
results kept during a broker's outage are bounded by the workers.
"""

from __future__ import annotations

import asyncio
from typing import Final

from async_processor.admission.base import Gate, Reason
from async_processor.clock import Clock
from async_processor.dispatch.merge.base import MergePolicy
from async_processor.dispatch.settings import PoolSettings, QueueSettings
from async_processor.telemetry.metrics import PoolMetrics

GATHERING: Final = 0.001
"""Seconds that a nearly full pool waits for more slots to come free, so that one claim fills
several: a thousandth of a second is little to a call that takes a second, and saves most claims."""

READY_SHARE: Final = 8
"""With an eighth of its workers free a pool offers them at once."""


class Bid:
    """An intake's wish for up to `want` slots."""

    __slots__ = ("granted", "queue", "slots", "want")

    def __init__(self, queue: QueueSettings, want: int) -> None:
        self.queue = queue
        self.want = want
        self.granted = 0
        self.slots: asyncio.Future[int] = asyncio.get_running_loop().create_future()


class Pool:
    """The slots of one worker pool. Only the pool writes its state; everybody calls its methods."""

    def __init__(
        self,
        settings: PoolSettings,
        gate: Gate,
        merge: MergePolicy,
        metrics: PoolMetrics,
        clock: Clock,
    ) -> None:
        self.name = settings.id
        self.workers = settings.workers
        self.gate = gate
        self._merge = merge
        self._metrics = metrics
        self._clock = clock
        self._free = settings.workers
        self._undispatched = 0
        self._bids: list[Bid] = []
        self._offer_due: asyncio.TimerHandle | None = None
        metrics.worker_limit(settings.workers)
        gate.subscribe(self._offer)

    @property
    def free_slots(self) -> int:
        """Workers without a request."""
        return self._free

    async def acquire(self, queue: QueueSettings, want: int) -> int:
        """Wait for slots; returns how many, at least one and at most `want`."""
        bid = Bid(queue, want)
        self._bids.append(bid)
        self._offer()
        try:
            return await bid.slots
        except asyncio.CancelledError:
            self._withdraw(bid)
            raise

    def give_back(self, slots: int) -> None:
        """Free slots that were granted and not used."""
        if slots:
            self._undispatched -= slots
            self.free(slots)

    def dispatched(self) -> None:
        """A granted slot's request was admitted by the pool's gate, which counts it from now on."""
        self._undispatched -= 1

    def free(self, slots: int = 1) -> None:
        """The requests of these slots are settled."""
        self._free += slots
        if not self._bids:
            return
        if self._free * READY_SHARE >= self.workers:
            self._offer()
        elif self._offer_due is None:
            loop = asyncio.get_running_loop()
            self._offer_due = loop.call_later(GATHERING, self._offer)

    async def watch_gate(self) -> None:
        """Count, once a second, that the gate keeps waiting work back. Runs until cancelled."""
        while True:
            await self._clock.sleep(1.0)
            if self._bids and self.gate.budget() <= 0:
                self._metrics.gate_decision(Reason.GATE_CLOSED.value)
            self._offer()

    def _offer(self) -> None:
        """Hand the free slots out, one by one in the policy's order."""
        if self._offer_due is not None:
            self._offer_due.cancel()
            self._offer_due = None
        offered = self._offerable()
        bids = [bid for bid in self._bids if not bid.slots.done()]
        while offered > 0 and bids:
            turn = self._merge.choose(bids)
            bid = bids[turn]
            bid.granted += 1
            offered -= 1
            if bid.granted == bid.want:
                del bids[turn]
        self._grant()

    def _offerable(self) -> int:
        if not self._bids or not self._free:
            return 0
        return min(self._free, self.gate.permits(self.workers) - self._undispatched)

    def _grant(self) -> None:
        for bid in self._bids:
            if bid.granted and not bid.slots.done():
                self._free -= bid.granted
                self._undispatched += bid.granted
                bid.slots.set_result(bid.granted)
        self._bids = [bid for bid in self._bids if not bid.granted]

    def _withdraw(self, bid: Bid) -> None:
        if bid in self._bids:
            self._bids.remove(bid)
        elif bid.slots.done() and not bid.slots.cancelled():
            self.give_back(bid.granted)
