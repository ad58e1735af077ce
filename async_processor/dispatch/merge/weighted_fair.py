"""Shares by weight among tenants, tier by tier.

Within a tier tenants share by their weights (see `shares`), in requests or in tokens. Between tiers
the order is strict, but for age: a request that has waited here for `max_age` goes first.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import ceil
from typing import Final

from async_processor.admission.base import Classification
from async_processor.dispatch.merge.base import Ready
from async_processor.dispatch.merge.cost import Cost
from async_processor.dispatch.merge.lane import Lane
from async_processor.dispatch.merge.looks import Looks
from async_processor.dispatch.merge.mix import Mix
from async_processor.dispatch.merge.places import Places
from async_processor.dispatch.merge.rounds import Rounds
from async_processor.dispatch.settings import QueueSettings
from async_processor.listeners import Leave, Listeners
from async_processor.wire.tenants import canonical
from async_processor.wire.tiers import Tier, read

DEFAULT: Final = "default"
"""The key of `weights` for tenants that are not named."""

LOT_PREFIX: Final = "fair:"

LARGEST_SHARE: Final = 2.0
"""A tenant with the usual rate may have so many times the places that are left."""

LOOKS_PER_WORKER: Final = 4
"""Requests that are put aside in a row to find those of another tenant that has come lately."""


SAMPLE: Final = 16
"""Tenants that a queue is judged by, those whose requests came last: however many share it, a claim
costs the same."""


class Inflow:
    """What one queue brings, and how far it may be looked through."""

    def __init__(self, *, workers: int) -> None:
        self.mix = Mix()
        self.rooms: tuple[object, Sequence[int]] = (None, ())
        """What its tenants may add, and at which state of the lanes that was found."""
        self.crowded = False
        """Whether any of its tenants had no room when that was last looked at."""
        self.looks = Looks(most=LOOKS_PER_WORKER * workers, pace=workers)
        """For tenants that came lately and have room."""
        self.scouts = Looks(most=workers, pace=workers)
        """For tenants that nobody has seen."""


class WeightedFair:
    """Requests wait in their tier's lane, of a usual tenant at most twice as many as places are
    left: a tenant alone takes two thirds of all, two take two fifths each (Choudhury and Hahne,
    "Dynamic Queue Length Thresholds", IEEE/ACM Transactions on Networking 1998); of others more or
    less, as they are served faster or slower. What is above that waits in the tenant's lot."""

    ahead = True

    def __init__(
        self,
        *,
        workers: int,
        tier_label: str,
        attribute: str,
        weights: Mapping[str, float],
        cost: Cost,
        max_age: float | None,
    ) -> None:
        self._tier_label = tier_label
        self._attribute = attribute
        self._weights = {canonical(tenant): weight for tenant, weight in weights.items()}
        self._cost = cost
        self._max_age = max_age
        self._lanes = {tier: Lane() for tier in Tier}
        self._crowds = {tier: Mix() for tier in Tier}
        self._places = Places(workers=workers, lanes=len(Tier), least=2)
        self._inflows = defaultdict[str, Inflow](partial(Inflow, workers=workers))
        """By queue."""
        self._rounds = Rounds()
        self._expected: Counter[Tier] = Counter()
        self._recalls = Listeners[[]]()
        self._changes = 0
        """Of the lanes and of what is known of tenants."""

    def choose(self, queues: Sequence[QueueSettings], now: float) -> int:
        """In turns, by the rates of what the queues bring; tiers have places of their own."""
        names = [queue.queue_name for queue in queues]
        steps = {name: 1 / self._inflows[name].mix.usual_rate for name in names}
        return names.index(self._rounds.choose(steps, now))

    def lane(self, queue: QueueSettings, classification: Classification) -> int:  # noqa: ARG002
        return 0

    def expect(self, queue: QueueSettings, change: int) -> None:
        self._expected[self._tier(queue)] += change

    def room(self, queue: QueueSettings, now: float) -> int:
        """Where a tenant's places are full, the queue is looked through for other tenants."""
        tier, inflow = self._tier(queue), self._inflows[queue.queue_name]
        expected, left = self._expected[tier], self._left(tier)
        rooms = self._rooms(tier, inflow, left, now)
        inflow.crowded = not all(rooms)
        sure = min(left, *rooms) - expected
        if sure > 0:
            return sure
        looks = inflow.looks if any(rooms) else inflow.scouts
        return min(looks.left(now), left) - expected

    def add(self, ready: Ready, now: float) -> str | None:
        tier, tenant = self._tier(ready.queue), self._tenant(ready)
        inflow = self._inflows[ready.queue.queue_name]
        left = self._left(tier)
        if not self._tenant_room(tier, tenant, left):
            self._note(tier, inflow, tenant, now)
            inflow.crowded = True
            inflow.looks.in_vain()
            inflow.scouts.in_vain()
            return LOT_PREFIX + tenant
        step = self._cost(ready.request) / self._weight(tenant)
        self._note(tier, inflow, tenant, now, rate=1 / step)
        if inflow.crowded and not all(self._rooms(tier, inflow, left, now)):
            inflow.looks.found()
        self._lanes[tier].add(tenant, ready, step, now)
        self._take(tier, +1)
        return None

    def _note(
        self, tier: Tier, inflow: Inflow, tenant: str, now: float, rate: float | None = None
    ) -> None:
        """A request has come. What is looked past is not worth finding out what it costs."""
        self._changes += 1
        for mix in (inflow.mix, self._crowds[tier]):
            mix.note(tenant, now, rate)

    def next(self, now: float, *, covered: bool = False) -> Ready | None:  # noqa: ARG002
        ready = self._overdue(now) or self._in_turn(now)
        if ready is not None:
            self._made_room(self._tier(ready.queue))
        return ready

    def remove(self, ready: Ready, now: float) -> None:
        tier = self._tier(ready.queue)
        if self._lanes[tier].remove(self._tenant(ready), ready, now):
            self._made_room(tier)

    def _made_room(self, tier: Tier) -> None:
        self._take(tier, -1)
        self._recalls.tell()

    def _take(self, tier: Tier, change: int) -> None:
        self._places.take(tier.rank, change)
        self._changes += 1

    def lot_room(
        self,
        queue: QueueSettings,
        lot: str,
        covered: int,  # noqa: ARG002
        coming: Mapping[str, int],
    ) -> int | None:
        if not lot.startswith(LOT_PREFIX):
            return None
        tier = self._tier(queue)
        left = self._left(tier)
        own = self._tenant_room(tier, lot.removeprefix(LOT_PREFIX), left) - coming.get(lot, 0)
        return max(0, min(left - sum(coming.values()), own))

    def on_room(self, recall: Callable[[], None]) -> Leave:
        return self._recalls.add(recall)

    def _in_turn(self, now: float) -> Ready | None:
        taken = (lane.next(now) for lane in self._lanes.values())
        return next((ready for ready in taken if ready is not None), None)

    def _overdue(self, now: float) -> Ready | None:
        if self._max_age is None:
            return None
        found = [ready for lane in self._lanes.values() if (ready := lane.oldest()) is not None]
        oldest = min(found, key=lambda ready: ready.since, default=None)
        if oldest is None or now - oldest.since < self._max_age:
            return None
        self._lanes[self._tier(oldest.queue)].take(self._tenant(oldest), oldest, now)
        return oldest

    def _rooms(self, tier: Tier, inflow: Inflow, left: int, now: float) -> Sequence[int]:
        """What tenants may add of those that a queue has brought lately; found out anew only when
        something has changed."""
        state = (self._changes, now)
        if inflow.rooms[0] != state:
            tenants = inflow.mix.latest(SAMPLE, now)
            rooms = [self._tenant_room(tier, tenant, left) for tenant in tenants] or [left]
            inflow.rooms = (state, rooms)
        return inflow.rooms[1]

    def _tenant_room(self, tier: Tier, tenant: str, left: int) -> int:
        """How many places a tenant may add to its own, of those left in its tier.

        The k-th while size + k - 1 < share (left - k + 1).
        """
        size = self._lanes[tier].size(tenant)
        share = LARGEST_SHARE * self._crowds[tier].relative_rate(tenant)
        return max(0, ceil((share * left - size) / (1 + share)))

    def _left(self, tier: Tier) -> int:
        return self._places.left(tier.rank)

    def _tier(self, queue: QueueSettings) -> Tier:
        return read(queue.labels.get(self._tier_label, ""))

    def _tenant(self, ready: Ready) -> str:
        return canonical(ready.request.metadata.get(self._attribute, ""))

    def _weight(self, tenant: str) -> float:
        return self._weights.get(tenant, self._weights.get(DEFAULT, 1.0))
