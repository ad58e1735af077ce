"""Where messages of one queue in memory wait apart from it: each lot on its own.

Nothing here waits and nothing reads a clock: whoever calls says what time it is (Unix seconds).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence

from async_processor.transport.memory_queue import Message


class Lots:
    """Lots by name; one that is empty does not exist. Identical messages of a lot are one."""

    def __init__(self) -> None:
        self._lots: dict[str, dict[bytes, Message]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The lots, the one with the lowest score first."""
        return tuple(sorted(self._lots, key=lambda name: min(self._lots[name].values())))

    def park(self, name: str, message: Message) -> None:
        """Let a message wait in a lot. An identical one that waits already takes over its score."""
        lot = self._lots.setdefault(name, {})
        if twin := lot.get(message.body):
            message.deliveries = max(message.deliveries, twin.deliveries)
        lot[message.body] = message

    def parked(self) -> Iterator[Message]:
        """The messages of all lots in no order."""
        for lot in self._lots.values():
            yield from lot.values()

    def take(self, name: str, limit: int, *, highest: float = math.inf) -> list[Message]:
        """Remove up to `limit` messages with a score up to `highest`, the earliest first."""
        lot = self._lots.get(name, {})
        due = (message for message in lot.values() if message.score <= highest)
        taken = heapq.nsmallest(limit, due)
        for message in taken:
            del lot[message.body]
        if not lot:
            self._lots.pop(name, None)
        return taken

    def take_expired(self, limit: int, now: float) -> Sequence[Message]:
        """Remove messages whose score has passed, up to `limit` of each lot."""
        return [message for name in self.names for message in self.take(name, limit, highest=now)]
