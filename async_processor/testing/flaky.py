"""A transport that fails on demand: what every caller of a broker has to live through."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from enum import Enum, auto
from typing import Literal, TypeVar

from async_processor.clock import Clock
from async_processor.errors import BrokerUnavailable
from async_processor.transport.base import Backlog, Delivery, Outcome, Settlement, Transport

T = TypeVar("T")

Operation = Literal[
    "ping",
    "claim",
    "claim_expired",
    "extend",
    "reclaim",
    "promote_retries",
    "trim_dead_letters",
    "lots",
    "recall",
    "next_expiry",
    "wait_for_work",
    "cancelled",
    "stored_payload",
    "backlog",
]
"""What may raise `BrokerUnavailable`; `settle` never does, it waits (see `Transport`)."""


class Fault(Enum):
    """When a call fails."""

    BEFORE = auto()
    """The broker never heard of it."""
    AFTER = auto()
    """It took effect, and the answer was lost."""


class FlakyTransport:
    """Passes everything on to another transport, but for the calls that were told to fail."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._faults: defaultdict[Operation, deque[Fault]] = defaultdict(deque)
        self._reachable = asyncio.Event()
        self._reachable.set()

    def fail(self, operation: Operation, fault: Fault = Fault.BEFORE, *, times: int = 1) -> None:
        """Let the next calls of one operation fail, after those already told to."""
        self._faults[operation].extend([fault] * times)

    def disconnect(self) -> None:
        """Let everything fail until `reconnect`; outcomes are kept meanwhile."""
        self._reachable.clear()

    def reconnect(self) -> None:
        self._reachable.set()

    async def _through(self, operation: Operation, call: Callable[[], Awaitable[T]]) -> T:
        if not self._reachable.is_set():
            raise BrokerUnavailable
        fault = self._faults[operation].popleft() if self._faults[operation] else None
        if fault is Fault.BEFORE:
            raise BrokerUnavailable
        answer = await call()
        if fault is Fault.AFTER:
            raise BrokerUnavailable
        return answer

    @property
    def clock(self) -> Clock:
        return self._inner.clock

    async def start(self) -> None:
        await self._reachable.wait()
        await self._inner.start()

    async def stop(self) -> None:
        await self._inner.stop()

    async def ping(self) -> None:
        await self._through("ping", self._inner.ping)

    async def claim(self, queue_name: str, limit: int, *, suspects: bool) -> Sequence[Delivery]:
        return await self._through(
            "claim", lambda: self._inner.claim(queue_name, limit, suspects=suspects)
        )

    async def claim_expired(self, queue_name: str, limit: int) -> Sequence[Delivery]:
        return await self._through(
            "claim_expired", lambda: self._inner.claim_expired(queue_name, limit)
        )

    async def settle(self, delivery: Delivery, outcome: Outcome) -> Settlement:
        await self._reachable.wait()
        return await self._inner.settle(delivery, outcome)

    async def extend(self, deliveries: Sequence[Delivery]) -> Collection[str]:
        return await self._through("extend", lambda: self._inner.extend(deliveries))

    async def reclaim(self, queue_name: str) -> int:
        return await self._through("reclaim", lambda: self._inner.reclaim(queue_name))

    async def promote_retries(self) -> float | None:
        return await self._through("promote_retries", self._inner.promote_retries)

    async def trim_dead_letters(self, limit: int) -> int:
        return await self._through(
            "trim_dead_letters", lambda: self._inner.trim_dead_letters(limit)
        )

    async def lots(self, queue_name: str) -> Sequence[str]:
        return await self._through("lots", lambda: self._inner.lots(queue_name))

    async def recall(self, queue_name: str, lot: str, limit: int) -> int:
        return await self._through("recall", lambda: self._inner.recall(queue_name, lot, limit))

    async def next_expiry(self, queue_name: str) -> float | None:
        return await self._through("next_expiry", lambda: self._inner.next_expiry(queue_name))

    async def wait_for_work(self, queue_name: str, timeout: float) -> bool:
        return await self._through(
            "wait_for_work", lambda: self._inner.wait_for_work(queue_name, timeout)
        )

    async def cancelled(self, deliveries: Sequence[Delivery]) -> Collection[str]:
        return await self._through("cancelled", lambda: self._inner.cancelled(deliveries))

    async def stored_payload(self, delivery: Delivery) -> bytes | None:
        return await self._through("stored_payload", lambda: self._inner.stored_payload(delivery))

    async def backlog(self, queue_name: str, bounds_ms: Sequence[int]) -> Backlog:
        return await self._through("backlog", lambda: self._inner.backlog(queue_name, bounds_ms))
