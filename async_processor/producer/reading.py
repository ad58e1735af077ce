"""Reads a result queue so that no result is lost with its reader.

A result that is taken moves, in one atomic step, from the queue into the reader's own keeping and
stays there until it is acknowledged. The reader holds a lease, which it renews while it lives.
When the lease ends, any other reader of the queue, at once or later, puts back what the dead one
kept; so a result is read twice only if its reader died before it acknowledged.

Nothing is taken by a blocking command: an idle reader waits for the queue to change and then
takes by a script that can be repeated, so neither a lost connection nor a cancelled wait loses
a result on its way.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Self

from async_processor.errors import BrokerUnavailable
from async_processor.producer.connection import Connection
from async_processor.producer.taken import Taken
from async_processor.redis_io.result_store import Kept, ResultStore

_BATCH: Final = 100
_BATCH_BYTES: Final = 2**20


class ResultReader:
    """The results of one queue, as an asynchronous iterator.

    Leave it by `async with` or `close`: what was taken and not acknowledged is put back at once.
    Without `follow` it ends when the queue is empty. `lease` is in seconds; `closed` is told of
    the end.
    """

    def __init__(
        self,
        broker: Connection,
        queue: str,
        *,
        lease: float,
        follow: bool,
        closed: Callable[[ResultReader], None],
    ) -> None:
        self._broker = broker
        self._queue = queue
        self._lease = lease
        self._follow = follow
        self._closed = closed
        self._name = secrets.token_hex(8)
        self._call = 0
        self._ready: deque[Kept] = deque()
        self._heart: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Begin the lease and put back what dead readers kept."""
        if self._heart is None:
            await self._broker.open()
            self._store = ResultStore(self._broker.client, self._queue)
            await self._renew()
            self._heart = asyncio.create_task(self._beat(), name=f"result-reader {self._name}")

    async def close(self) -> None:
        """Put back what was not acknowledged, and forget this reader."""
        self._closed(self)
        if self._heart is None:
            return
        self._heart.cancel()
        await asyncio.gather(self._heart, return_exceptions=True)
        self._heart = None
        self._ready.clear()
        await self._broker(lambda: self._store.give_back(self._name, closed=True))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Taken:
        await self.open()
        self._check_heart()
        while not self._ready:
            self._ready.extend(await self._take())
            if not self._ready:
                await self._idle()
        return self._taken(self._ready.popleft())

    async def ack(self, taken: Sequence[Taken]) -> None:
        """Acknowledge many in one step."""
        await self._acknowledge([one.number for one in taken])

    async def _take(self) -> Sequence[Kept]:
        """A call keeps its number until its answer has been heard: repeated, it takes no more."""
        kept = await self._broker(
            lambda: self._store.take(
                self._name, self._lease, self._call, limit=_BATCH, max_bytes=_BATCH_BYTES
            )
        )
        self._call += 1
        return kept

    async def _idle(self) -> None:
        if not self._follow:
            raise StopAsyncIteration
        await self._broker.watch.wait(self._queue)

    def _taken(self, kept: Kept) -> Taken:
        return Taken(kept.body, partial(self._acknowledge, [kept.number]), number=kept.number)

    async def _acknowledge(self, numbers: Sequence[bytes]) -> None:
        await self._broker(lambda: self._store.acknowledge(self._name, numbers))

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._lease / 3)
            with suppress(BrokerUnavailable):  # whoever reads hears of it; the next beat may work
                await self._renew()

    async def _renew(self) -> None:
        for dead in await self._broker(lambda: self._store.keep(self._name, self._lease)):
            await self._broker(partial(self._store.give_back, dead, closed=False))

    def _check_heart(self) -> None:
        if self._heart is not None and self._heart.done():
            self._heart.result()
