"""Which tenants have come lately, from one queue or in one tier, and at which rates their weights
let them be served: what is to be expected next."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from typing import Final

LATELY: Final = 10.0
"""Seconds."""

MOST: Final = 1000
"""Tenants that are remembered."""


class Mix:
    """Times are monotonic seconds. A rate is weight / cost: requests per unit of a fair share."""

    def __init__(self) -> None:
        self._seen_at: OrderedDict[str, float] = OrderedDict()
        self._rates: dict[str, float] = {}
        self._sum = 0.0

    def note(self, tenant: str, rate: float, now: float) -> None:
        """A request has come."""
        self._sum += rate - self._rates.get(tenant, 0.0)
        self._rates[tenant] = rate
        self._seen_at[tenant] = now
        self._seen_at.move_to_end(tenant)
        self._forget(now)

    def tenants(self, now: float) -> Collection[str]:
        """Whose came lately."""
        self._forget(now)
        return self._rates.keys()

    @property
    def usual_rate(self) -> float:
        """The mean of these tenants'; 1 when there are none."""
        return self._sum / len(self._rates) if self._rates else 1.0

    def relative_rate(self, tenant: str) -> float:
        """A tenant's by the usual one; 1 when it has not come lately."""
        return self._rates[tenant] / self.usual_rate if tenant in self._rates else 1.0

    def _forget(self, now: float) -> None:
        while self._seen_at:
            tenant, seen_at = next(iter(self._seen_at.items()))
            if len(self._seen_at) <= MOST and now - seen_at <= LATELY:
                return
            del self._seen_at[tenant]
            self._sum -= self._rates.pop(tenant)
