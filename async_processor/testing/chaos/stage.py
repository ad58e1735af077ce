"""Where a trial takes place: a broker, an inference server, daemons, a producer, a reader."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from async_processor.producer import Producer, Submission
from async_processor.redis_io.client import RedisClient
from async_processor.redis_io.connect import open_client
from async_processor.testing.chaos.front import Front
from async_processor.testing.chaos.ledger import Ledger
from async_processor.testing.chaos.replica import Replica
from async_processor.testing.chaos.results import Results
from async_processor.testing.daemons import short_lived_settings
from async_processor.testing.servers import RedisServer, redis_binary

QUEUE: Final = "request-sortedset"
RESULTS: Final = "result-list"
DEAD_LETTERS: Final = "dead-letter-list"
DURABLE: Final = ("--appendonly", "yes", "--appendfsync", "always")
_PATIENCE: Final = 300.0
"""Seconds that the producer waits for a broker which comes back."""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """How large a trial is. `latency` and `lease` are in seconds.

    `refusals` is the share of calls that the inference server answers with 503.
    """

    replicas: int = 3
    workers: int = 16
    latency: float = 1.0
    refusals: float = 0.05
    lease: float = 3.0
    broker_args: tuple[str, ...] = DURABLE
    settings: Mapping[str, Any] | None = None
    seed: int = 0


USUAL: Final = Scene()


class Stage:
    """Made by `stage`. `asking` goes to the broker directly, past the bad networks."""

    def __init__(self, scene: Scene, folder: Path) -> None:
        self.scene = scene
        self.folder = folder
        self.ledger = Ledger()
        self.broker = RedisServer(redis_binary(), list(scene.broker_args))
        self.front = Front(
            self.ledger, latency=scene.latency, refusals=scene.refusals, seed=scene.seed
        )
        self.replicas: list[Replica] = []
        self.submitted: list[str] = []
        self.complaints: list[str] = []
        self.missed = 0
        """Daemons that were killed somewhere else than at their probe point."""
        self.broker_busy = asyncio.Lock()
        self.front_busy = asyncio.Lock()
        self.asking: RedisClient
        self.results: Results
        self._producer: Producer

    async def open(self, stack: AsyncExitStack) -> None:
        """Start everything; `stack` ends it."""
        await asyncio.to_thread(self.broker.start)
        stack.callback(self.broker.remove)
        await stack.enter_async_context(self.front)
        self._producer = await stack.enter_async_context(
            Producer(self.broker.url, retry_for=_PATIENCE)
        )
        self.asking = open_client(self.broker.url)
        stack.push_async_callback(self.asking.close)
        self.results = Results(self.asking, RESULTS)
        following = asyncio.create_task(self.results.follow(), name="follow results")
        stack.callback(following.cancel)
        self.replicas = [self._replica(number) for number in range(self.scene.replicas)]
        for replica in self.replicas:
            stack.push_async_callback(replica.close)
        await asyncio.gather(*(each.open(self._settings) for each in self.replicas))

    def _replica(self, number: int) -> Replica:
        return Replica(
            f"replica-{number}",
            self.folder,
            broker_port=self.broker.port,
            front_port=self.front.port,
        )

    def _settings(self, broker_port: int, front_port: int) -> Mapping[str, Any]:
        settings = short_lived_settings(
            f"redis://127.0.0.1:{broker_port}/0",
            f"http://localhost:{front_port}",
            workers=self.scene.workers,
            inference={"request_timeout": "5s"},
            limits={"answer_bytes": "1MiB"},
            **(self.scene.settings or {}),
        )
        settings["transport"]["lease_ttl"] = self.scene.lease
        return settings

    async def submit(self, count: int) -> list[str]:
        """Submit so many requests; returns their ids once the broker has confirmed them."""
        first = len(self.submitted)
        ids = [f"r-{number}" for number in range(first, first + count)]
        self.submitted += ids
        await self._producer.submit_many(
            Submission(
                id=each, payload={"prompt": "hi", "max_tokens": 4, "user": each}, deadline="2h"
            )
            for each in ids
        )
        return ids

    @property
    def missing(self) -> int:
        """How many requests have no result yet."""
        return len(self.submitted) - len(self.results.seen_at.keys() & set(self.submitted))

    @property
    def idle(self) -> bool:
        """Whether there is a result for every request; quicker than `missing`."""
        return len(self.results.seen_at) >= len(self.submitted)

    @asynccontextmanager
    async def broker_frozen(self) -> AsyncIterator[None]:
        """The broker's process stands still meanwhile."""
        os.kill(self.broker.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.broker.pid, signal.SIGCONT)

    async def leftovers(self) -> list[str]:
        """Keys that must not be there once every request has its result."""
        names = await self.asking.execute("KEYS", "*")
        kept = (RESULTS, DEAD_LETTERS, "request-seq:", "request-receipt")
        return [name.decode() for name in names if not name.decode().startswith(kept)]


@asynccontextmanager
async def stage(scene: Scene, folder: Path) -> AsyncIterator[Stage]:
    """A stage, with every daemon ready."""
    made = Stage(scene, folder)
    async with AsyncExitStack() as stack:
        await made.open(stack)
        yield made
