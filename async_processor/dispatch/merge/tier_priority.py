"""Six strict lanes: what a quota covers before what it does not, and within each by tier.

reserved-interactive, reserved-async, reserved-batch, overflow-interactive, overflow-async,
overflow-batch. An unknown tier is batch, an unclassified request is overflow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from async_processor.admission.base import Classification
from async_processor.dispatch.merge.base import Bidder, Ready
from async_processor.dispatch.merge.lane import Lane
from async_processor.dispatch.settings import QueueSettings
from async_processor.listeners import Leave, Listeners
from async_processor.wire.tiers import Tier, read

LANES: Final = tuple(
    f"{classification}-{tier}"
    for classification in (Classification.RESERVED, Classification.OVERFLOW)
    for tier in Tier
)
"""The names of the lanes, the highest first; an index here is a lane's priority."""

LOT: Final = "lane "
"""What the names of lots begin with where requests of a full lane wait that have no lot of their
gate's; the lane's name follows."""


def lane_of(tier: Tier, classification: Classification) -> int:
    """A request's lane, 0 the highest to 5."""
    reserved = classification is Classification.RESERVED
    return tier.rank if reserved else len(Tier) + tier.rank


class TierPriority:
    """A lower lane gets a slot only when every higher one is empty.

    Lanes are short, and each has a place of its own in the pool's memory, so that no lane can
    crowd out a higher one.
    """

    ahead = True

    def __init__(self, *, workers: int, tier_label: str) -> None:
        capacity = max(1, workers // len(LANES))
        self._lanes = tuple(Lane(capacity) for _ in LANES)
        self._tier_label = tier_label
        self._turns: dict[str, int] = {}
        self._turn = 0
        self._recalls = Listeners[[]]()

    def choose(self, bidders: Sequence[Bidder]) -> int:
        """The highest tier; among equals the queue whose last turn is longest ago."""
        turn = min(
            range(len(bidders)),
            key=lambda index: (
                self._tier(bidders[index].queue).rank,
                self._turns.get(bidders[index].queue.queue_name, 0),
            ),
        )
        self._turn += 1
        self._turns[bidders[turn].queue.queue_name] = self._turn
        return turn

    def room(self, queue: QueueSettings) -> int:
        tier = self._tier(queue)
        return sum(
            self._lanes[lane_of(tier, classification)].room
            for classification in (Classification.RESERVED, Classification.OVERFLOW)
        )

    def add(self, ready: Ready) -> str | None:
        lane = self._lane(ready)
        if not lane.room:
            return ready.lot or LOT + LANES[self.lane(ready.queue, ready.classification)]
        lane.add(ready)
        return None

    def next(self, now: float) -> Ready | None:  # noqa: ARG002 - strict lanes know no age
        for lane in self._lanes:
            was_full = not lane.room
            ready = lane.next()
            if ready is not None:
                self._tell(was_full)
                return ready
        return None

    def remove(self, ready: Ready) -> None:
        lane = self._lane(ready)
        was_full = not lane.room
        if lane.remove(ready):
            self._tell(was_full)

    def lot_room(
        self, queue: QueueSettings, lot: str, covered: int, coming: Mapping[str, int]
    ) -> int | None:
        """What comes back goes into the reserved lane as far as it is covered, else overflow."""
        room = self._lane_of_lot(queue, lot, covered).room - sum(coming.values())
        return max(0, min(room, covered) if covered else room)

    def on_room(self, recall: Callable[[], None]) -> Leave:
        return self._recalls.add(recall)

    def lane(self, queue: QueueSettings, classification: Classification) -> int:
        return lane_of(self._tier(queue), classification)

    def _lane(self, ready: Ready) -> Lane:
        return self._lanes[self.lane(ready.queue, ready.classification)]

    def _lane_of_lot(self, queue: QueueSettings, lot: str, covered: int) -> Lane:
        name = lot.removeprefix(LOT)
        if name in LANES:
            return self._lanes[LANES.index(name)]
        return self._lanes[
            self.lane(queue, Classification.RESERVED if covered else Classification.OVERFLOW)
        ]

    def _tier(self, queue: QueueSettings) -> Tier:
        return read(queue.labels.get(self._tier_label, ""))

    def _tell(self, was_full: bool) -> None:
        if was_full:
            self._recalls.tell()
