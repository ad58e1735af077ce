"""Poison drags its neighbours down: whatever a process holds when it dies counts one delivery.

A message that was delivered twice without an outcome is a suspect, and a replica holds one suspect
at a time, of whichever queue, so that only the culprit reaches the limit of deliveries. One that
merely waits, for a gate or for its turn, kills nobody but would count with another that does. So it
keeps the room for a while only: when a claim elsewhere has found the room taken it goes back to the
broker, uncounted, and its queue lets another one have the room first.
"""

from __future__ import annotations

import math
from typing import Final

from async_processor.settlement.held import Held, Interruption, Phase
from async_processor.transport.base import SUSPECT_AFTER, Delivery

PATIENCE: Final = 5.0
"""Seconds that a suspect may wait here before it has to make room for those of other queues."""

REST: Final = 5.0
"""Seconds at most that a queue whose suspect made room leaves it to others."""


def is_suspect(delivery: Delivery) -> bool:
    """Whether two claims have left it without an outcome."""
    return delivery.deliveries >= SUSPECT_AFTER


class Suspects:
    """Room for one suspect in this replica; written by intakes. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._taken = False
        self._holder: Held | None = None
        self._resting = ""
        """The queue that is to leave the room to others."""
        self._rests_until = -math.inf

    def take(self, queue_name: str, now: float) -> bool:
        """Take the room if it is free; if not, whoever merely waits in it has to leave soon."""
        if self._taken:
            self._ask_for_room(queue_name, now)
            return False
        if queue_name == self._resting and now < self._rests_until:
            return False
        self._taken, self._resting = True, ""
        return True

    def hold(self, held: Held) -> None:
        """The room was taken for this one."""
        self._holder = held

    def leave(self) -> None:
        """The room is free again."""
        self._taken, self._holder = False, None

    def _ask_for_room(self, queue_name: str, now: float) -> None:
        holder = self._holder
        if holder is None or holder.phase not in (Phase.QUEUED, Phase.PARKED):
            return
        own = holder.delivery.queue_name
        if own != queue_name and now - holder.claimed_at >= PATIENCE:
            self._resting, self._rests_until = own, now + REST
            holder.interrupt(Interruption.YIELDED)
