"""Which tenants have come lately, from one queue or in one tier, and at which rates their weights
let them be served: what is to be expected next."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from itertools import islice
from math import fsum
from typing import Final

LATELY: Final = 10.0
"""Seconds."""

MOST: Final = 1000
"""Tenants that are remembered."""


class Mix:
    """Times are monotonic seconds. A rate is weight / cost: requests per unit of a fair share."""

    def __init__(self) -> None:
        self._seen_at: OrderedDict[str, float] = OrderedDict()
        """The latest last."""
        self._rates: dict[str, float] = {}
        self._usual_rate: float | None = 1.0
        """None: the rates have changed since it was taken."""

    def note(self, tenant: str, now: float, rate: float | None = None) -> None:
        """A request has come; None: at its tenant's last rate, or the usual one."""
        if rate is None:
            rate = self._rates.get(tenant, self.usual_rate)
        if self._rates.get(tenant) != rate:
            self._rates[tenant] = rate
            self._usual_rate = None
        self._seen_at[tenant] = now
        self._seen_at.move_to_end(tenant)
        self._forget(now)

    def latest(self, most: int, now: float) -> Iterable[str]:
        """The tenants whose requests came last, at most so many of those who came lately."""
        self._forget(now)
        return islice(reversed(self._seen_at), most)

    @property
    def usual_rate(self) -> float:
        """The mean of these tenants'; 1 when there are none."""
        if self._usual_rate is None:
            self._usual_rate = fsum(self._rates.values()) / len(self._rates) if self._rates else 1.0
        return self._usual_rate

    def relative_rate(self, tenant: str) -> float:
        """A tenant's by the usual one; 1 when it has not come lately."""
        return self._rates[tenant] / self.usual_rate if tenant in self._rates else 1.0

    def _forget(self, now: float) -> None:
        while self._seen_at:
            tenant, seen_at = next(iter(self._seen_at.items()))
            if len(self._seen_at) <= MOST and now - seen_at <= LATELY:
                return
            del self._seen_at[tenant], self._rates[tenant]
            self._usual_rate = None
