"""Every queue with work has the same chance at each free slot."""

from __future__ import annotations

import random
from collections.abc import Sequence

from async_processor.dispatch.merge.base import Bidder


class RandomRobin:
    """Draws; over many slots the queues share a pool evenly, whatever their backlogs."""

    def choose(self, bidders: Sequence[Bidder]) -> int:
        return random.randrange(len(bidders))
