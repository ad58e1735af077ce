"""The lots of a queue whose messages wait for room in a lane of the merge policy, and whose turn it
is to be looked at."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


class LaneLots:
    """In a round each lot is looked at once, the one looked at longest ago first."""

    def __init__(self) -> None:
        self._lots: OrderedDict[str, None] = OrderedDict()
        self.to_look_at = 0
        """How many are left of the round."""

    def __contains__(self, lot: str) -> bool:
        return lot in self._lots

    def add(self, lot: str) -> None:
        """Messages wait in it."""
        self._lots.setdefault(lot)

    def discard(self, lot: str) -> None:
        """It is empty, or nobody's."""
        self._lots.pop(lot, None)
        self.to_look_at = min(self.to_look_at, len(self._lots))

    def begin_round(self) -> None:
        """A lane has room."""
        self.to_look_at = len(self._lots)

    def take(self, limit: int) -> Sequence[str]:
        """The next lots of the round."""
        count = min(limit, self.to_look_at)
        self.to_look_at -= count
        taken = [lot for lot, _ in zip(self._lots, range(count), strict=False)]
        for lot in taken:
            self._lots.move_to_end(lot)
        return taken
