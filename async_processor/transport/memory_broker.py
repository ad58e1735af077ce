"""A broker inside this process: what several `MemoryTransport`s and a producer share.

It keeps what a Redis would keep for the processor: queues with leases, the retry queue, lists
with a lifetime (results and dead letters), and the keys of a request. It lives in one event loop,
and every method takes effect at once, so each is atomic.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from dataclasses import dataclass, field
from itertools import count

from async_processor.clock import Clock, SystemClock
from async_processor.transport.memory_lots import Lots
from async_processor.transport.memory_queue import Message, ScoredQueue
from async_processor.wire.names import active_key, cancel_key


@dataclass(slots=True, kw_only=True)
class _Key:
    value: bytes
    expires_at: float | None


@dataclass(slots=True, kw_only=True)
class _List:
    items: deque[bytes] = field(default_factory=deque)
    expires_at: float | None = None


@dataclass(order=True, slots=True)
class _Retry:
    due_at: float
    order: int
    queue_name: str = field(compare=False)
    body: bytes = field(compare=False)


class MemoryBroker:
    """Everything is lost with the process. Times are Unix times in seconds by `clock`."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or SystemClock()
        self._arrivals = count()
        self._queues: defaultdict[str, ScoredQueue] = defaultdict(ScoredQueue)
        self._lots: defaultdict[str, Lots] = defaultdict(Lots)
        self._retries: list[_Retry] = []
        self._lists: dict[str, _List] = {}
        self._keys: dict[str, _Key] = {}

    # Requests

    def queue(self, name: str) -> ScoredQueue:
        return self._queues[name]

    def queues(self) -> tuple[ScoredQueue, ...]:
        return tuple(self._queues.values())

    def lots(self, queue_name: str) -> Lots:
        """Where messages of a queue wait apart from it."""
        return self._lots[queue_name]

    def submit(self, queue_name: str, body: bytes, score: float) -> None:
        """Let a message wait in a queue under its score."""
        message = Message(body=body, score=score, arrival=next(self._arrivals))
        self.queue(queue_name).add(message)

    def retry_later(self, queue_name: str, body: bytes, due_at: float) -> None:
        """Keep a message until it is due."""
        heapq.heappush(self._retries, _Retry(due_at, next(self._arrivals), queue_name, body))

    def due_retry(self) -> tuple[str, bytes] | None:
        """Take the next retry that is due: its queue and its body."""
        if not self._retries or self._retries[0].due_at > self.clock.now():
            return None
        retry = heapq.heappop(self._retries)
        return retry.queue_name, retry.body

    def next_retry(self) -> float | None:
        """When the next retry is due."""
        return self._retries[0].due_at if self._retries else None

    def retries(self, queue_name: str) -> int:
        """How many messages of a queue wait to be tried again."""
        return sum(retry.queue_name == queue_name for retry in self._retries)

    # Results and dead letters

    def push(self, list_name: str, item: bytes, expires_after: float | None = None) -> None:
        """Add to a list; with `expires_after` (seconds) the whole list expires then."""
        found = self._list(list_name) or self._lists.setdefault(list_name, _List())
        found.items.append(item)
        if expires_after is not None:
            found.expires_at = self.clock.now() + expires_after

    def pop(self, list_name: str) -> bytes | None:
        """Take the oldest item of a list; None when it is empty."""
        found = self._list(list_name)
        if found is None:
            return None
        item = found.items.popleft()
        if not found.items:
            del self._lists[list_name]
        return item

    def items(self, list_name: str) -> tuple[bytes, ...]:
        """What lies on a list, the oldest first."""
        found = self._list(list_name)
        return tuple(found.items) if found else ()

    def trim(self, list_name: str, limit: int) -> int:
        """Drop the oldest items of a list over `limit`; returns how many."""
        excess = max(0, len(self.items(list_name)) - limit)
        for _ in range(excess):
            self.pop(list_name)
        return excess

    def lifetime(self, list_name: str) -> float | None:
        """Seconds until a list expires; None when it does not."""
        found = self._list(list_name)
        if found is None or found.expires_at is None:
            return None
        return found.expires_at - self.clock.now()

    def _list(self, name: str) -> _List | None:
        found = self._lists.get(name)
        if found is not None and self._passed(found.expires_at):
            del self._lists[name]
            return None
        return found

    # Keys of a request

    def get_key(self, key: str) -> bytes | None:
        """A key's value; None when there is none or it has expired."""
        found = self._keys.get(key)
        if found is not None and self._passed(found.expires_at):
            del self._keys[key]
            return None
        return found.value if found else None

    def set_key(self, key: str, value: bytes, expires_at: float | None = None) -> None:
        self._keys[key] = _Key(value=value, expires_at=expires_at)

    def delete_key(self, key: str) -> None:
        self._keys.pop(key, None)

    def cancel(self, request_id: str) -> bool:
        """Cancel the generation of this id that is active now; False when there is none."""
        token = self.get_key(active_key(request_id))
        if token is None:
            return False
        self.set_key(cancel_key(request_id), token, self.clock.now() + _CANCEL_LIFETIME)
        return True

    def _passed(self, expires_at: float | None) -> bool:
        return expires_at is not None and expires_at <= self.clock.now()


_CANCEL_LIFETIME = 7 * 24 * 3600.0
