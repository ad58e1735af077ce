"""One queue in memory: messages in order of score, and the leases on those that were claimed.

Nothing here waits and nothing reads a clock: whoever calls says what time it is (Unix seconds).
Waiting messages lie in two heaps, calm ones and suspects, so that a claim that wants no suspect
never has to step over them. A message that is replaced stays in its heap, marked, until it comes
up: every operation is O(log n).
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from async_processor.transport.base import SUSPECT_AFTER


@dataclass(slots=True, kw_only=True, eq=False)
class Message:
    """A body and where it stands; `arrival` breaks ties, `deliveries` counts lost leases."""

    body: bytes
    score: float
    arrival: int
    deliveries: int = 0
    replaced: bool = False

    def __lt__(self, other: Message) -> bool:
        return (self.score, self.arrival) < (other.score, other.arrival)

    def release_as(self, body: bytes | None, score: float | None) -> None:
        """Take over what a release changes; None changes nothing."""
        if body is not None:
            self.body = body
        if score is not None:
            self.score = score

    @property
    def suspect(self) -> bool:
        return self.deliveries >= SUSPECT_AFTER


@dataclass(slots=True, kw_only=True, eq=False)
class Lease:
    """Who has a message, and until when (Unix seconds)."""

    message: Message
    owner: str
    expires_at: float


class ScoredQueue:
    """The waiting and the leased messages of one queue."""

    def __init__(self) -> None:
        self.filled = asyncio.Event()
        """Set as long as a message waits."""
        self._waiting: dict[bytes, Message] = {}
        self._calm: list[Message] = []
        self._suspects: list[Message] = []
        self._leases: dict[str, Lease] = {}
        self._expiries: list[tuple[float, str]] = []

    @property
    def leased(self) -> int:
        return len(self._leases)

    def waiting(self) -> Iterator[Message]:
        """The waiting messages in no order."""
        return iter(self._waiting.values())

    def add(self, message: Message) -> None:
        """Let a message wait. An identical one that waits already takes over the new score."""
        twin = self._waiting.get(message.body)
        if twin is not None:
            twin.replaced = True
            message.deliveries = max(message.deliveries, twin.deliveries)
            message.arrival = min(message.arrival, twin.arrival)
        self._waiting[message.body] = message
        heapq.heappush(self._suspects if message.suspect else self._calm, message)
        self.filled.set()

    def first(self, *, suspects: bool) -> Message | None:
        """The message that is next, suspects among them or not."""
        heaps = (self._calm, self._suspects) if suspects else (self._calm,)
        heads = [head for heap in heaps if (head := _head(heap)) is not None]
        return min(heads, default=None)

    def take(self, limit: int, *, suspects: bool) -> list[Message]:
        """Remove up to `limit` messages in their order, at most one suspect among them."""
        taken: list[Message] = []
        while len(taken) < limit and (message := self.first(suspects=suspects)) is not None:
            taken.append(self._remove(message))
            suspects = suspects and not message.suspect
        return taken

    def take_expired(self, limit: int, now: float) -> list[Message]:
        """Remove up to `limit` messages whose score has passed."""
        taken: list[Message] = []
        while (
            len(taken) < limit
            and (message := self.first(suspects=True)) is not None
            and message.score <= now
        ):
            taken.append(self._remove(message))
        return taken

    def _remove(self, message: Message) -> Message:
        """Take the head of its heap out."""
        heapq.heappop(self._suspects if message.suspect else self._calm)
        del self._waiting[message.body]
        if not self._waiting:
            self.filled.clear()
        return message

    def lease(self, token: str, lease: Lease) -> None:
        """Note who has a message that was taken."""
        self._leases[token] = lease
        heapq.heappush(self._expiries, (lease.expires_at, token))

    def extend(self, token: str, expires_at: float) -> bool:
        """Renew a lease; False when it is lost."""
        lease = self._leases.get(token)
        if lease is None:
            return False
        lease.expires_at = expires_at
        heapq.heappush(self._expiries, (expires_at, token))
        return True

    def end_lease(self, token: str) -> Message | None:
        """Give a claim up; None when it was lost before."""
        lease = self._leases.pop(token, None)
        return lease.message if lease else None

    def end_expired(self, now: float) -> list[Message]:
        """End every lease that nobody has extended, and return what they held."""
        ended: list[Message] = []
        while self._expiries and self._expiries[0][0] <= now:
            _, token = heapq.heappop(self._expiries)
            lease = self._leases.get(token)
            if lease is not None and lease.expires_at <= now:
                ended.append(lease.message)
                del self._leases[token]
        return ended

    def end_owned(self, owner: str) -> list[Message]:
        """End every lease of one owner, and return what they held."""
        tokens = [token for token, lease in self._leases.items() if lease.owner == owner]
        return [self._leases.pop(token).message for token in tokens]


def _head(heap: list[Message]) -> Message | None:
    while heap and heap[0].replaced:
        heapq.heappop(heap)
    return heap[0] if heap else None
