"""What runs under a limit that somebody sets, and who is told when some of it has ended.

The count belongs to the place where the gate stands: a gate that takes another one's place goes on
with it, so that what runs when a limit is changed counts under the new one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from async_processor.admission.base import Ticket
from async_processor.admission.tickets import LocalTicket
from async_processor.listeners import Leave, Listeners


class InFlight:
    """How many run. A limit of None lets any number run; one that falls cuts nothing off."""

    def __init__(self) -> None:
        self.count = 0
        self._held_back = 0
        self._ended = Listeners[[]]()

    def free(self, limit: int | None) -> int | None:
        """How many more may run at once; None: any number."""
        return None if limit is None else max(0, limit - self.count)

    def take(self, limit: int | None) -> Ticket | None:
        """One starts now, if it may."""
        if self.free(limit) == 0:
            self._held_back += 1
            return None
        self.count += 1
        return LocalTicket(
            on_release=self._release, on_refund=partial(self._refund, self._held_back)
        )

    def subscribe(self, ended: Callable[[], None]) -> Leave:
        """Call `ended` when one has ended and another may start."""
        return self._ended.add(ended)

    def _release(self) -> None:
        self.count -= 1
        self._ended.tell()

    def _refund(self, held_back_before: int) -> None:
        self.count -= 1
        if self._held_back != held_back_before:
            self._ended.tell()
