"""A pool of workers: first the slot, then the message.

The pool owns its slots. An intake bids for seats and gets them in the merge policy's order, no more
than the pool's gate lets start; what it does not use it leaves. A seat is held from the bid until
the request's outcome is settled, so that what this process holds is bounded by its workers, also
the results that it keeps while the broker is away.

With a policy that needs to see requests before it can order them, seats come before slots: about as
many as there are workers wait in the policy's lanes, and each slot that comes free goes to the
request whose turn it is; some are kept from surplus for a moment (see `kept_slots`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Final

from async_processor.admission.base import Classification, Gate, Reason
from async_processor.admission.live_number import LiveNumber
from async_processor.admission.portion import WHOLE, Portion
from async_processor.clock import Clock
from async_processor.dispatch.kept_slots import KEPT, KeptSlots
from async_processor.dispatch.merge.base import MergePolicy, Ready
from async_processor.dispatch.seat import Seat, Stand
from async_processor.dispatch.settings import QueueSettings
from async_processor.listeners import Leave, nobody_tells
from async_processor.telemetry.metrics import PoolMetrics, TenantMetrics
from async_processor.timeouts import Timeouts

GATHERING: Final = 0.002
"""Seconds that a nearly full pool waits for more slots to come free, so that one claim fills
several: two milliseconds are little to a call that takes a second, and save most claims."""

READY_SHARE: Final = 4
"""With a quarter of its workers free a pool offers them at once."""


class Bid:
    """An intake's wish for up to `want` seats."""

    __slots__ = ("granted", "queue", "seats", "want")

    def __init__(self, queue: QueueSettings, want: int) -> None:
        self.queue = queue
        self.want = want
        self.granted: list[Seat] = []
        self.seats: asyncio.Future[Sequence[Seat]] = asyncio.get_running_loop().create_future()


AHEAD: Final = (Stand.CLAIMING, Stand.LANE)
"""Stands without a slot."""


class Pool:
    """The seats of one worker pool. Only the pool and its seats write its state."""

    def __init__(
        self,
        name: str,
        size: LiveNumber,
        gate: Gate,
        merge: MergePolicy,
        metrics: PoolMetrics,
        clock: Clock,
        portion: Portion = WHOLE,
    ) -> None:
        self.name = name
        self.size = size
        """How many workers all processes of this replica have; gates divide it as the pool does.
        Only `reconfigure` writes it."""
        self.tenants: TenantMetrics | None = None
        """What counts whose requests start here, where a tenant is named.
        Only a reload writes it."""
        self._portion = portion
        """This process's part of them."""
        self._metrics = metrics
        self._clock = clock
        self._stands: Counter[Stand] = Counter()
        self._claiming: set[Seat] = set()
        """Those that the merge policy expects."""
        self._turns: dict[Ready, Seat] = {}
        """Who waits in a lane, by what stands there."""
        self.timeouts = Timeouts()
        """Of those who wait here, for seats or in a lane."""
        self._kept = KeptSlots()
        self._bids: list[Bid] = []
        self._offer_due: asyncio.TimerHandle | None = None
        self._leave_gate: Leave = nobody_tells
        self.reconfigure(size.value, gate, merge)

    def reconfigure(self, workers: int, gate: Gate, merge: MergePolicy) -> None:
        """Take over other numbers and parts; what runs goes on, also over a smaller number.

        Whatever waits in a lane of another policy has to be cut off by the caller.
        """
        self._leave_gate()
        self.gate = gate
        self.merge = merge
        self.size.set(workers)
        self.workers = self._portion.of(workers)
        for seat in self._claiming:
            merge.expect(seat.queue, +1)
        self._metrics.worker_limit(self.workers)
        self._leave_gate = gate.subscribe(self._offer)
        self._offer()

    def close(self) -> None:
        """The pool is gone: its gate tells it nothing any more, and what runs goes on."""
        self._leave_gate()

    @property
    def is_empty(self) -> bool:
        """Whether nobody has a seat."""
        return not any(self._stands.values())

    @property
    def free_slots(self) -> int:
        """Workers without a request."""
        return self.workers - self._stands[Stand.SLOT] - self._stands[Stand.RUNNING]

    async def acquire(self, queue: QueueSettings, want: int, patience: float) -> Sequence[Seat]:
        """Wait for seats, `patience` seconds at most; returns up to `want` of them, or none.

        The patience bounds how long a queue that has been emptied by others goes on bidding.
        """
        bid = Bid(queue, want)
        self._bids.append(bid)
        self._hear_bids()
        if bid.seats.done():
            return bid.granted
        try:
            with self.timeouts.limit(patience):
                return await bid.seats
        except TimeoutError:
            self._withdraw(bid)
            return ()
        except asyncio.CancelledError:
            self._withdraw(bid)
            raise

    def publish_gate(self) -> None:
        """Show the gate's reading, and count that it keeps work waiting; called once a second."""
        self._metrics.gate_reading(self.gate.state())
        if (self._bids or self._turns) and self.gate.budget() <= 0:
            self._metrics.gate_decision(Reason.GATE_CLOSED.value)
        self._offer()

    def moved(self, seat: Seat, before: Stand | None, after: Stand | None) -> None:
        """Called by a seat whenever it changes its stand."""
        if before is not None:
            self._stands[before] -= 1
        if after is not None:
            self._stands[after] += 1
        if before is Stand.CLAIMING:
            self._claiming.remove(seat)
            self.merge.expect(seat.queue, -1)
        elif after is Stand.CLAIMING:
            self._claiming.add(seat)
            self.merge.expect(seat.queue, +1)
        if seat.ready is not None and after not in AHEAD:
            self._follow(seat.ready, before, after)
        if before is not None and after in (None, Stand.LANE):
            self._offer_soon()
        if before is Stand.SLOT and after is Stand.RUNNING and self.free_slots > 0:
            self._offer_soon()  # the gate counts it, so that the slot is not counted twice any more

    def _follow(self, ready: Ready, before: Stand | None, after: Stand | None) -> None:
        """A request that waited for its turn has a slot, or is gone."""
        if before in AHEAD:
            self._kept.waits_no_more(ready)
        if after is None and self._kept.ended(ready, self._clock.monotonic()):
            asyncio.get_running_loop().call_later(KEPT, self._give_turns)

    def stands_in_lane(self, seat: Seat, ready: Ready) -> str | None:
        """A request waits for its turn; if its lane is full, returns the lot it belongs in."""
        self._kept.waits(ready, before=seat.ready)
        lot = self.merge.add(ready, self._clock.monotonic())
        if lot is None:
            self._turns[ready] = seat
        return lot

    def leaves_lane(self, ready: Ready) -> None:
        """A request that waited does not any more."""
        if self._turns.pop(ready, None) is not None:
            self.merge.remove(ready, self._clock.monotonic())

    def _offer_soon(self) -> None:
        """Offer at once, or, when nearly every slot is taken, when more may have come free.

        Where requests are put in order, whoever has just become ready is waited for as well.
        """
        if not self._bids and not self._turns:
            return
        if self.free_slots * READY_SHARE >= self.workers and not self.merge.ahead:
            self._offer()
        elif self._offer_due is None:
            loop = asyncio.get_running_loop()
            self._offer_due = loop.call_later(GATHERING, self._offer)

    def _offer(self) -> None:
        """Slots to whose turn it is, then seats to those who bid."""
        if self._offer_due is not None:
            self._offer_due.cancel()
            self._offer_due = None
        self._give_turns()
        self._hear_bids()

    def _give_turns(self) -> None:
        startable = self._startable() if self._turns else 0
        now = self._clock.monotonic()
        for left in range(startable, 0, -1):
            ready = self.merge.next(now, covered=left <= self._kept.count(now))
            if ready is None:
                return
            if ready.classification is Classification.RESERVED:
                self._kept.spent()
            self._turns.pop(ready).take_turn()

    def _startable(self) -> int:
        """Free slots that the gate lets be used, on top of those about to be."""
        permits = self.gate.permits(self.workers) - self._stands[Stand.SLOT]
        return min(self.free_slots, permits)

    def _hear_bids(self) -> None:
        """Hand seats out, one by one in the policy's order."""
        offered, now = self._offerable() if self._bids else 0, self._clock.monotonic()
        while offered > 0:
            bids = [bid for bid in self._bids if self._wants(bid, now)]
            if not bids:
                break
            bid = bids[self.merge.choose([bid.queue for bid in bids], now)]
            bid.granted.append(Seat(self, bid.queue, self._first_stand))
            offered -= 1
        self._grant()

    @property
    def _first_stand(self) -> Stand:
        return Stand.CLAIMING if self.merge.ahead else Stand.SLOT

    def _offerable(self) -> int:
        """Seats that slots are free for; ahead of slots it is the lanes that have room or not."""
        if not self.merge.ahead:
            return self._startable()
        return self.workers if self.gate.permits(self.workers) > 0 else 0

    def _wants(self, bid: Bid, now: float) -> bool:
        if bid.seats.done() or len(bid.granted) >= bid.want:
            return False
        return not self.merge.ahead or self.merge.room(bid.queue, now) > 0

    def _grant(self) -> None:
        for bid in self._bids:
            if bid.granted and not bid.seats.done():
                bid.seats.set_result(bid.granted)
        self._bids = [bid for bid in self._bids if not bid.granted]

    def _withdraw(self, bid: Bid) -> None:
        if bid in self._bids:
            self._bids.remove(bid)
        for seat in bid.granted:
            seat.leave()
