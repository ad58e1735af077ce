"""Tenants that were over their quota lately, and when they may have room again."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from typing import Final

MOST: Final = 10_000
"""Tenants that are kept; of more, those refused longest ago are found by the sweep of the lots."""

LATELY: Final = 30.0
"""Seconds that a tenant counts as over its quota after it was."""


class Waiting:
    """Times are monotonic seconds. Kept by the gate that refuses; every operation is O(log n)."""

    def __init__(self) -> None:
        self._full_at: OrderedDict[str, float] = OrderedDict()
        self._looks: dict[str, float] = {}
        self._due: list[tuple[float, str]] = []

    def full(self, tenant: str, now: float, look_after: float) -> None:
        """A tenant has no room; there may be some after that many seconds."""
        self._full_at[tenant] = now
        self._full_at.move_to_end(tenant)
        while len(self._full_at) > MOST:
            self._full_at.popitem(last=False)
        if tenant not in self._looks and len(self._looks) < MOST:
            self._looks[tenant] = now + look_after
            heapq.heappush(self._due, (now + look_after, tenant))

    def due(self, now: float) -> list[str]:
        """Take out the tenants that may have room by now."""
        found = []
        while self._due and self._due[0][0] <= now:
            found.append(heapq.heappop(self._due)[1])
            del self._looks[found[-1]]
        return found

    def over_quota(self, now: float) -> list[str]:
        """Who was over the quota lately, the latest first."""
        while self._full_at and next(iter(self._full_at.values())) < now - LATELY:
            self._full_at.popitem(last=False)
        return list(reversed(self._full_at))
