"""The contract suite's eyes and hands on a `MemoryBroker`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from async_processor.clock import Clock
from async_processor.testing.probe import Capability
from async_processor.transport.base import Transport
from async_processor.transport.memory import MemoryTransport
from async_processor.transport.memory_broker import MemoryBroker
from async_processor.transport.settings import MemorySettings
from async_processor.wire import dead_letter
from async_processor.wire.dead_letter import DeadLetter


class MemoryProbe:
    """A `BrokerProbe` (see there); a manual clock can be given for unit tests."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.broker = MemoryBroker(clock)
        self._replicas: list[Transport] = []

    @property
    def capabilities(self) -> frozenset[Capability]:
        return frozenset(Capability)

    @property
    def forgiven(self) -> int:
        return 0

    async def leases_end(self, lease_ttl: float) -> None:
        """They end when they are reclaimed."""

    async def replica(self, *, lease_ttl: float = 60.0) -> Transport:
        transport = MemoryTransport(MemorySettings(lease_ttl=lease_ttl), self.broker)
        self._replicas.append(transport)
        await transport.start()
        return transport

    async def close(self) -> None:
        for replica in self._replicas:
            await replica.stop()

    async def now(self) -> float:
        return self.broker.clock.now()

    async def submit(self, queue_name: str, body: bytes, score: float) -> None:
        self.broker.submit(queue_name, body, score)

    async def waiting(self, queue_name: str) -> Mapping[bytes, float]:
        waiting = self.broker.queue(queue_name).waiting()
        return {message.body: message.score for message in waiting}

    async def results(self, result_queue: str) -> Sequence[bytes]:
        return self.broker.items(result_queue)

    async def result_lifetime(self, result_queue: str) -> float | None:
        return self.broker.lifetime(result_queue)

    async def dead_letters(self) -> Sequence[DeadLetter]:
        return [dead_letter.decode(item) for item in self.broker.items("dead-letter-list")]

    async def set_key(self, key: str, value: bytes) -> None:
        self.broker.set_key(key, value)

    async def get_key(self, key: str) -> bytes | None:
        return self.broker.get_key(key)


@asynccontextmanager
async def memory_probe() -> AsyncIterator[MemoryProbe]:
    """An empty broker in memory, its replicas stopped at the end."""
    probe = MemoryProbe()
    try:
        yield probe
    finally:
        await probe.close()
