"""Every queue with work has the same chance at each free slot."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from async_processor.admission.base import Classification
from async_processor.dispatch.merge.base import Ready
from async_processor.dispatch.settings import QueueSettings
from async_processor.listeners import Leave, nobody_tells


class RandomRobin:
    """Draws; over many slots the queues share a pool evenly, whatever their backlogs.

    It needs to see nothing of a request, so that what is claimed runs at once.
    """

    ahead = False

    def choose(self, queues: Sequence[QueueSettings], now: float) -> int:  # noqa: ARG002
        return random.randrange(len(queues))

    def lane(self, queue: QueueSettings, classification: Classification) -> int:  # noqa: ARG002
        return 0

    def expect(self, queue: QueueSettings, change: int) -> None:
        """What is claimed has its slot."""

    def room(self, queue: QueueSettings, now: float) -> int:  # noqa: ARG002
        return 0

    def add(self, ready: Ready, now: float) -> str | None:
        raise NotImplementedError("nothing waits for this policy")

    def next(self, now: float, *, covered: bool = False) -> Ready | None:  # noqa: ARG002
        return None

    def remove(self, ready: Ready, now: float) -> None:
        """Nothing waits here."""

    def lot_room(
        self,
        queue: QueueSettings,  # noqa: ARG002
        lot: str,  # noqa: ARG002
        covered: int,  # noqa: ARG002
        coming: Mapping[str, int],  # noqa: ARG002
    ) -> int | None:
        return None

    def on_room(self, recall: Callable[[], None]) -> Leave:  # noqa: ARG002
        """Nothing is ever full."""
        return nobody_tells
