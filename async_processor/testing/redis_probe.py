"""The contract suite's eyes and hands on a Redis or Valkey."""

from __future__ import annotations

import atexit
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache

from async_processor.redis_io.client import RedisClient
from async_processor.redis_io.connect import open_client
from async_processor.testing.probe import Capability
from async_processor.testing.servers import RedisServer
from async_processor.testing.stage import QUEUE
from async_processor.transport.redis_sorted_set import CLAIM_BYTES, RedisSortedSet
from async_processor.transport.settings import RedisSettings
from async_processor.wire import dead_letter
from async_processor.wire.dead_letter import DeadLetter


class RedisProbe:
    """A `BrokerProbe` (see there) on an empty server at `url`.

    The replicas connect by `replica_url` if it is given: through a bad network, as another user.
    """

    def __init__(self, url: str, *, replica_url: str = "") -> None:
        self.url = url
        self._replica_url = replica_url or url
        self._replicas: list[RedisSortedSet] = []
        self.client: RedisClient = open_client(url)

    @property
    def capabilities(self) -> frozenset[Capability]:
        return frozenset(Capability)

    @property
    def forgiven(self) -> int:
        return 0

    async def leases_end(self, lease_ttl: float) -> None:
        """They end when they are reclaimed."""

    async def replica(self, *, lease_ttl: float = 60.0, fresh: bool = False) -> RedisSortedSet:
        """One that has run for long, and its server too, unless it is to be `fresh`."""
        transport = self.stopped_replica(lease_ttl=lease_ttl)
        await transport.start()
        if not fresh:
            link = transport._link  # noqa: SLF001 - nobody else may rewrite this history
            link.opened_at = link.server_started_at = -math.inf
        return transport

    def stopped_replica(
        self, *, lease_ttl: float = 60.0, claim_bytes: int = CLAIM_BYTES
    ) -> RedisSortedSet:
        """A replica that the test starts when it likes."""
        settings = RedisSettings(url=self._replica_url, lease_ttl=lease_ttl)
        transport = RedisSortedSet(settings, [QUEUE], claim_bytes=claim_bytes, stop_timeout=1.0)
        self._replicas.append(transport)
        return transport

    async def close(self) -> None:
        for replica in self._replicas:
            await replica.stop()
        await self.client.close()

    async def now(self) -> float:
        seconds, microseconds = await self.client.execute("TIME")
        return int(seconds) + int(microseconds) / 1e6

    async def submit(self, queue_name: str, body: bytes, score: float) -> None:
        await self.client.execute("ZADD", queue_name, repr(score), body)

    async def waiting(self, queue_name: str) -> Mapping[bytes, float]:
        flat = await self.client.execute("ZRANGE", queue_name, 0, -1, "WITHSCORES")
        return {body: float(score) for body, score in zip(flat[::2], flat[1::2], strict=True)}

    async def results(self, result_queue: str) -> Sequence[bytes]:
        newest_first: list[bytes] = await self.client.execute("LRANGE", result_queue, 0, -1)
        return newest_first[::-1]

    async def result_lifetime(self, result_queue: str) -> float | None:
        milliseconds: int = await self.client.execute("PTTL", result_queue)
        return milliseconds / 1000 if milliseconds >= 0 else None

    async def dead_letters(self) -> Sequence[DeadLetter]:
        return [dead_letter.decode(letter) for letter in await self.results("dead-letter-list")]

    async def set_key(self, key: str, value: bytes) -> None:
        await self.client.execute("SET", key, value)

    async def get_key(self, key: str) -> bytes | None:
        value: bytes | None = await self.client.execute("GET", key)
        return value

    async def keyspace(self) -> dict[str, object]:
        """Everything in the server, as Python values, for comparing whole states."""
        names = sorted(await self.client.execute("KEYS", "*"))
        return {name.decode(): await self._value(name) for name in names}

    async def _value(self, name: bytes) -> object:
        match await self.client.execute("TYPE", name):
            case b"string":
                return await self.client.execute("GET", name)
            case b"list":
                return await self.client.execute("LRANGE", name, 0, -1)
            case b"zset":
                return await self.waiting(name.decode())
            case b"hash":
                flat = await self.client.execute("HGETALL", name)
                return dict(zip(flat[::2], flat[1::2], strict=True))
            case other:
                raise NotImplementedError(f"{name!r} is a {other!r}")


@asynccontextmanager
async def redis_probe(binary: str) -> AsyncIterator[RedisProbe]:
    """An empty server, its replicas stopped at the end; the process starts one per binary."""
    server = _server(binary)
    server.flush()
    async with probing(server.url) as probe:
        yield probe


@asynccontextmanager
async def probing(url: str, *, replica_url: str = "") -> AsyncIterator[RedisProbe]:
    """A probe of a test's own server, its replicas stopped at the end."""
    probe = RedisProbe(url, replica_url=replica_url)
    try:
        yield probe
    finally:
        await probe.close()


@cache
def _server(binary: str) -> RedisServer:
    server = RedisServer(binary)
    atexit.register(server.remove)
    server.start()
    return server
