"""Shares by weight among tenants, tier by tier.

Within a tier: deficit round robin (Shreedhar and Varghese, "Efficient Fair Queuing Using Deficit
Round-Robin", SIGCOMM 1995) with the smallest quantum: all accounts grow by their weights, in step,
until one of them covers the cost of its tenant's next request. Between tiers the order is strict,
but for age: a request that has waited for `max_age` here goes first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from async_processor.admission.base import Classification
from async_processor.dispatch.merge.base import Bidder, Ready
from async_processor.dispatch.merge.cost import Cost
from async_processor.dispatch.merge.lane import Lane
from async_processor.dispatch.settings import QueueSettings
from async_processor.listeners import Leave, Listeners
from async_processor.wire.tiers import Tier, read

DEFAULT: Final = "default"
"""The key of `weights` for tenants that are not named."""

LOT_PREFIX: Final = "fair:"

LARGEST_SHARE: Final = 2
"""A tenant may have half of its tier's places, and less beside others, so that it cannot hide
them."""


class Tenants:
    """The lanes of one tier's tenants, and their accounts."""

    def __init__(self, weight: Callable[[str], float], cost: Cost, places: int) -> None:
        self._weight = weight
        self._cost = cost
        self._places = places
        self._lanes: dict[str, Lane] = {}
        self._accounts: dict[str, float] = {}
        self._costs: dict[int, float] = {}

    @property
    def room(self) -> int:
        """Places that are free."""
        return self._places - len(self._costs)

    def lane_room(self, tenant: str) -> int:
        """Places that a tenant may still take, whether the tier has them or not."""
        lane = self._lanes.get(tenant)
        tenants = len(self._lanes) + (lane is None)
        capacity = max(1, self._places // max(LARGEST_SHARE, tenants))
        return capacity - (0 if lane is None else len(lane))

    def add(self, tenant: str, ready: Ready) -> None:
        self._lanes.setdefault(tenant, Lane(self._places)).add(ready)
        self._accounts.setdefault(tenant, 0.0)
        self._costs[id(ready)] = self._cost(ready.request)

    def next(self) -> Ready | None:
        """Take out whose turn it is."""
        if not self._lanes:
            return None
        rounds, tenant = min((self._rounds_until(tenant), tenant) for tenant in self._lanes)
        for each in self._lanes:
            self._accounts[each] += max(0.0, rounds) * self._weight(each)
        ready = self._lanes[tenant].peek()
        assert ready is not None  # noqa: S101 - an empty lane is forgotten
        self._accounts[tenant] -= self._costs[id(ready)]
        self._lanes[tenant].next()
        self._forget(tenant, ready)
        return ready

    def remove(self, tenant: str, ready: Ready) -> bool:
        """Take one out of turn; False when it does not wait here."""
        lane = self._lanes.get(tenant)
        if lane is None or not lane.remove(ready):
            return False
        self._forget(tenant, ready)
        return True

    def oldest(self) -> Ready | None:
        """The request that has waited longest."""
        found = [ready for lane in self._lanes.values() if (ready := lane.oldest()) is not None]
        return min(found, key=lambda ready: ready.since, default=None)

    def _rounds_until(self, tenant: str) -> float:
        """How often the accounts must grow until this tenant can pay for its next request."""
        ready = self._lanes[tenant].peek()
        assert ready is not None  # noqa: S101 - an empty lane is forgotten
        return (self._costs[id(ready)] - self._accounts[tenant]) / self._weight(tenant)

    def _forget(self, tenant: str, ready: Ready) -> None:
        """A tenant with nothing waiting saves nothing up."""
        del self._costs[id(ready)]
        if not len(self._lanes[tenant]):
            del self._lanes[tenant], self._accounts[tenant]


class WeightedFair:
    """Requests wait in their tenant's lane; one of a full lane waits in the tenant's lot."""

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
        self._weights = weights
        self._max_age = max_age
        places = max(1, workers // len(Tier))
        self._tiers = {tier: Tenants(self._weight, cost, places) for tier in Tier}
        self._turns: dict[str, int] = {}
        self._turn = 0
        self._recalls = Listeners[[]]()

    def choose(self, bidders: Sequence[Bidder]) -> int:
        """The queue whose last turn is longest ago; tiers have places of their own."""
        turn = min(
            range(len(bidders)),
            key=lambda index: self._turns.get(bidders[index].queue.queue_name, 0),
        )
        self._turn += 1
        self._turns[bidders[turn].queue.queue_name] = self._turn
        return turn

    def lane(self, queue: QueueSettings, classification: Classification) -> int:  # noqa: ARG002
        return 0

    def room(self, queue: QueueSettings) -> int:
        return self._tenants(queue).room

    def add(self, ready: Ready) -> str | None:
        tenants, tenant = self._tenants(ready.queue), self._tenant(ready)
        if tenants.lane_room(tenant) <= 0:
            return LOT_PREFIX + tenant
        tenants.add(tenant, ready)
        return None

    def next(self, now: float) -> Ready | None:
        ready = self._overdue(now)
        if ready is not None:
            self.remove(ready)
            return ready
        for tenants in self._tiers.values():
            ready = tenants.next()
            if ready is not None:
                self._recalls.tell()
                return ready
        return None

    def remove(self, ready: Ready) -> None:
        if self._tenants(ready.queue).remove(self._tenant(ready), ready):
            self._recalls.tell()

    def lot_room(
        self,
        queue: QueueSettings,
        lot: str,
        covered: int,  # noqa: ARG002
        coming: Mapping[str, int],
    ) -> int | None:
        if not lot.startswith(LOT_PREFIX):
            return None
        tenants = self._tenants(queue)
        own = tenants.lane_room(lot.removeprefix(LOT_PREFIX)) - coming.get(lot, 0)
        return max(0, min(tenants.room - sum(coming.values()), own))

    def on_room(self, recall: Callable[[], None]) -> Leave:
        return self._recalls.add(recall)

    def _overdue(self, now: float) -> Ready | None:
        if self._max_age is None:
            return None
        found = [ready for each in self._tiers.values() if (ready := each.oldest()) is not None]
        oldest = min(found, key=lambda ready: ready.since, default=None)
        if oldest is None or now - oldest.since < self._max_age:
            return None
        return oldest

    def _tenants(self, queue: QueueSettings) -> Tenants:
        return self._tiers[read(queue.labels.get(self._tier_label, ""))]

    def _tenant(self, ready: Ready) -> str:
        return ready.request.metadata.get(self._attribute, "")

    def _weight(self, tenant: str) -> float:
        return self._weights.get(tenant, self._weights.get(DEFAULT, 1.0))
