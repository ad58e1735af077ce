"""Slots that are kept from surplus for a moment.

When a request that its tenant's quota covered ends and more of the tenant wait as surplus, one of
them is about to be covered in its place, and should not find that the surplus of others was
quicker.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

from async_processor.admission.base import Classification
from async_processor.dispatch.merge.base import Ready

KEPT: Final = 0.25
"""Seconds at most that a slot is kept, until the quota has been asked again."""


class KeptSlots:
    """One pool's. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._until: deque[float] = deque()
        self._surplus: Counter[tuple[str, str]] = Counter()
        """Requests ahead of slots that are over their quota, by queue and lot."""

    def count(self, now: float) -> int:
        """How many are kept."""
        while self._until and self._until[0] <= now:
            self._until.popleft()
        return len(self._until)

    def waits(self, ready: Ready, before: Ready | None) -> None:
        """A request ahead of slots waits for its turn; `before` is what it was last time."""
        if before is not None:
            self.waits_no_more(before)
        if ready.classification is Classification.OVERFLOW:
            self._surplus[_tenant(ready)] += 1
            if before is not None:
                self.spent()  # looked at again, in vain

    def waits_no_more(self, ready: Ready) -> None:
        """It has a slot, or is gone."""
        if ready.classification is Classification.OVERFLOW:
            self._surplus[_tenant(ready)] -= 1
            if not self._surplus[_tenant(ready)]:
                del self._surplus[_tenant(ready)]

    def ended(self, ready: Ready, now: float) -> bool:
        """A request is settled; returns whether its slot is kept, `KEPT` seconds at most."""
        kept = ready.classification is Classification.RESERVED and _tenant(ready) in self._surplus
        if kept:
            self._until.append(now + KEPT)
        return kept

    def spent(self) -> None:
        """One slot is kept no longer, if any was."""
        if self._until:
            self._until.popleft()


def _tenant(ready: Ready) -> tuple[str, str]:
    return ready.queue.queue_name, ready.lot
