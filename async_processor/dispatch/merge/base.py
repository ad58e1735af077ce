"""In which order the requests of queues that share a pool get its free slots.

Some policies need to see requests before they can order them. For these a pool claims ahead of its
free slots: what is claimed waits in the policy's lanes, which are short, so that the order of
deadlines stays the broker's. No more is claimed than surely finds a place, whatever lane it turns
out to belong in, but for looks past a full lane: a request whose lane is full goes back to the
broker, into a lot, and is recalled when there is room.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from async_processor.admission.base import Classification
from async_processor.dispatch.settings import QueueSettings
from async_processor.listeners import Leave
from async_processor.wire.request import Request


class Ready(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A claimed and admitted request that is ready to run.

    `since` is when it was claimed (monotonic seconds). `lot` is where its gate would let it wait.
    """

    queue: QueueSettings
    request: Request
    since: float
    classification: Classification = Classification.NONE
    lot: str = ""


class MergePolicy(Protocol):
    """Decides whose turn it is. `now` is in monotonic seconds throughout."""

    @property
    def ahead(self) -> bool:
        """Whether the pool claims ahead of its free slots, for `add` and `next` to order."""
        ...

    def choose(self, queues: Sequence[QueueSettings], now: float) -> int:
        """The index of the queue whose turn it is to claim; `queues` is never empty."""
        ...

    def lane(self, queue: QueueSettings, classification: Classification) -> int:
        """Which of the policy's lanes a request belongs in, 0 the highest; it tells the router."""
        ...

    def expect(self, queue: QueueSettings, change: int) -> None:
        """So many more (or fewer) requests of a queue are being claimed and admitted."""
        ...

    def room(self, queue: QueueSettings, now: float) -> int:
        """How many more requests of a queue may be claimed ahead, beside those expected."""
        ...

    def add(self, ready: Ready, now: float) -> str | None:
        """Let a request wait for its turn; if its lane is full, returns the lot it belongs in."""
        ...

    def next(self, now: float, *, covered: bool = False) -> Ready | None:
        """Take out the request whose turn it is; None when none waits.

        With `covered`, where the order goes by quotas: only if its tenant's quota covers it.
        """
        ...

    def remove(self, ready: Ready, now: float) -> None:
        """A request that waited will not run; it may have been taken out already."""
        ...

    def lot_room(
        self, queue: QueueSettings, lot: str, covered: int, coming: Mapping[str, int]
    ) -> int | None:
        """How many of a queue's lot may come back now; None: the lot is not the policy's.

        `covered` is how many of them their gate's quota would cover; `coming` how many have just
        been called back from which lots of the queue, and do not stand in their lanes yet.
        """
        ...

    def on_room(self, recall: Callable[[], None]) -> Leave:
        """Call `recall` whenever a lane that was full has room again, until what is returned is
        called."""
        ...
