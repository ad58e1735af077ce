"""Six strict lanes: what a quota covers before what it does not, and within each by tier.

reserved-interactive, reserved-async, reserved-batch, overflow-interactive, overflow-async,
overflow-batch. An unknown tier is batch, an unclassified request is overflow. Within a lane queues
take turns; within a queue the earliest deadline goes first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from async_processor.admission.base import Classification
from async_processor.dispatch.merge.base import Ready
from async_processor.dispatch.merge.lane import Lane
from async_processor.dispatch.merge.looks import Looks
from async_processor.dispatch.merge.places import Places
from async_processor.dispatch.merge.rounds import Rounds
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

LOOKS: Final = 1000
"""Requests over their quota that are put aside at once, and in a second, as long as none within
its quota is found among them."""


def lane_of(tier: Tier, classification: Classification) -> int:
    """A request's lane, 0 the highest to 5."""
    reserved = classification is Classification.RESERVED
    return tier.rank if reserved else len(Tier) + tier.rank


class TierPriority:
    """A lower lane gets a slot only when every higher one is empty."""

    ahead = True

    def __init__(self, *, workers: int, tier_label: str) -> None:
        self._lanes = tuple(Lane() for _ in LANES)
        self._standing = Places(workers=workers, lanes=len(LANES), least=1)
        self._claimed = Places(workers=workers, lanes=len(LANES), least=1)
        """With those that are expected, which count in both lanes that they may turn out to belong
        in."""
        self._tier_label = tier_label
        self._rounds = Rounds()
        self._looks = Looks(most=LOOKS, pace=LOOKS)
        self._recalls = Listeners[[]]()
        self._expected: Counter[tuple[int, str]] = Counter()
        """By the tier's rank and the queue."""
        self._classified: set[str] = set()
        """Queues whose gate tells what a quota covers."""

    def choose(self, queues: Sequence[QueueSettings], now: float) -> int:
        """The highest tier; among equals in turns."""
        highest = min([self._tier(queue).rank for queue in queues])
        equals = {
            queue.queue_name: index
            for index, queue in enumerate(queues)
            if self._tier(queue).rank == highest
        }
        return equals[self._rounds.choose(dict.fromkeys(equals, 1.0), now)]

    def expect(self, queue: QueueSettings, change: int) -> None:
        tier, name = self._tier(queue), queue.queue_name
        self._expected[tier.rank, name] += change
        self._claimed.take(lane_of(tier, Classification.OVERFLOW), change)
        if name in self._classified:
            self._claimed.take(lane_of(tier, Classification.RESERVED), change)

    def room(self, queue: QueueSettings, now: float) -> int:
        """Where only the overflow lane is full, the queue is looked through for what is covered."""
        tier = self._tier(queue)
        overflow = self._claimed.left(lane_of(tier, Classification.OVERFLOW))
        if queue.queue_name not in self._classified:
            return overflow
        reserved = self._claimed.left(lane_of(tier, Classification.RESERVED))
        if overflow > 0:
            return min(reserved, overflow)
        return min(reserved, self._looks.left(now))

    def add(self, ready: Ready, now: float) -> str | None:
        name, lane = ready.queue.queue_name, self.lane(ready.queue, ready.classification)
        if ready.classification is not Classification.NONE and name not in self._classified:
            self._classify(name)
        if self._standing.left(lane) <= 0:
            self._looks.in_vain()
            return ready.lot or LOT + LANES[lane]
        if ready.classification is Classification.RESERVED:
            self._looks.found()
        self._lanes[lane].add(name, ready, 1.0, now)
        self._take(lane, +1)
        return None

    def next(self, now: float, *, covered: bool = False) -> Ready | None:
        lanes = self._lanes[: len(Tier)] if covered else self._lanes
        for number, lane in enumerate(lanes):
            ready = lane.next(now)
            if ready is not None:
                self._made_room(number)
                return ready
        return None

    def remove(self, ready: Ready, now: float) -> None:
        lane = self.lane(ready.queue, ready.classification)
        if self._lanes[lane].remove(ready.queue.queue_name, ready, now):
            self._made_room(lane)

    def _made_room(self, lane: int) -> None:
        self._take(lane, -1)
        self._recalls.tell()

    def _take(self, lane: int, change: int) -> None:
        self._standing.take(lane, change)
        self._claimed.take(lane, change)

    def _classify(self, name: str) -> None:
        """The queue's gate tells what a quota covers: what is expected may be covered, too."""
        self._classified.add(name)
        for tier in Tier:
            lane = lane_of(tier, Classification.RESERVED)
            self._claimed.take(lane, self._expected[tier.rank, name])

    def lot_room(
        self, queue: QueueSettings, lot: str, covered: int, coming: Mapping[str, int]
    ) -> int | None:
        """What comes back goes into the reserved lane as far as it is covered, else overflow."""
        room = self._standing.left(self._lane_of_lot(queue, lot, covered)) - sum(coming.values())
        return max(0, min(room, covered) if covered else room)

    def on_room(self, recall: Callable[[], None]) -> Leave:
        return self._recalls.add(recall)

    def lane(self, queue: QueueSettings, classification: Classification) -> int:
        return lane_of(self._tier(queue), classification)

    def _lane_of_lot(self, queue: QueueSettings, lot: str, covered: int) -> int:
        name = lot.removeprefix(LOT)
        if name in LANES:
            return LANES.index(name)
        return self.lane(queue, Classification.RESERVED if covered else Classification.OVERFLOW)

    def _tier(self, queue: QueueSettings) -> Tier:
        return read(queue.labels.get(self._tier_label, ""))
