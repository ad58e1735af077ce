"""In which order queues that share a pool get its free slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from async_processor.dispatch.settings import QueueSettings


class Bidder(Protocol):
    """A queue that has work and wants slots."""

    @property
    def queue(self) -> QueueSettings: ...


class MergePolicy(Protocol):
    """Decides who is offered the next free slot."""

    def choose(self, bidders: Sequence[Bidder]) -> int:
        """The index of the bidder whose turn it is; `bidders` is never empty."""
        ...
