"""Waits for lists to get an item, any number of them on two connections, without polling.

`CLIENT TRACKING` makes the server say when a key changes whose length was asked for: one line
carries the questions (LLEN), another what the server says by itself. Where tracking is not to be
had (an ACL, a proxy, a cluster), the lists somebody waits for are looked at every few tens of
milliseconds.

Owner of all state: the task of `_run`, which lives while somebody waits. Callers of `wait` add and
remove their own futures, and ask a first question.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from async_processor.errors import BrokerRefused, BrokerUnavailable
from async_processor.redis_io.client import Line, RedisClient

_INVALIDATIONS: Final = "__redis__:invalidate"
_SAFETY_S: Final = 5.0
"""All lists are looked at this often in any case, and the lines must show that they are alive."""
_RETRY_S: Final = (0.05, 0.5)
_POLL_S: Final = (0.02, 0.05)


class ListWatch:
    """Tells when a list has an item."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._questions: asyncio.Queue[str] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def stop(self) -> None:
        """Disconnect; whoever still waits is cancelled."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        for future in [future for futures in self._waiting.values() for future in futures]:
            future.cancel()

    async def wait(self, key: str) -> None:
        """Return when the list is not empty. Cancelling it leaves nothing behind.

        A broker that is away is waited for. Raises BrokerRefused where the key is no list, and what
        nobody has foreseen and has ended the watch.
        """
        future = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, set()).add(future)
        self._questions.put_nowait(key)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="list-watch")
            self._task.add_done_callback(self._ended)
        try:
            await future
        finally:
            self._forget(key, future)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Nobody waits for what does not watch any more."""
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        for future in itertools.chain.from_iterable(self._waiting.values()):
            if not future.done():
                future.set_exception(error)

    def _forget(self, key: str, future: asyncio.Future[None]) -> None:
        futures = self._waiting[key]
        futures.discard(future)
        if not futures:
            del self._waiting[key]

    async def _run(self) -> None:
        attend = self._poll if self._client.clustered else self._track
        while self._waiting:
            try:
                await attend()
            except* BrokerRefused:
                attend = self._poll
            except* BrokerUnavailable:
                await asyncio.sleep(random.uniform(*_RETRY_S))

    async def _track(self) -> None:
        async with self._lines() as (listener, asker):
            mine = await listener.ask("CLIENT", "ID")
            await listener.ask("SUBSCRIBE", _INVALIDATIONS)
            await asker.ask("CLIENT", "TRACKING", "ON", "REDIRECT", mine)
            async with asyncio.TaskGroup() as tasks:
                helpers = (
                    tasks.create_task(self._ask(asker)),
                    tasks.create_task(self._listen(listener)),
                )
                await self._look_at_all(listener)
                for helper in helpers:
                    helper.cancel()

    @asynccontextmanager
    async def _lines(self) -> AsyncIterator[tuple[Line, Line]]:
        async with AsyncExitStack() as stack:
            lines = []
            for _ in range(2):
                lines.append(await self._client.line())
                stack.push_async_callback(lines[-1].close)
            yield lines[0], lines[1]

    async def _look_at_all(self, listener: Line) -> None:
        """Returns when nobody waits any more."""
        while self._waiting:
            self._look(self._waiting)
            await listener.send("PING")
            await asyncio.sleep(_SAFETY_S)

    async def _ask(self, asker: Line) -> None:
        while True:
            keys = [await self._questions.get()]
            while not self._questions.empty():
                keys.append(self._questions.get_nowait())
            await self._ask_for(asker, keys)

    async def _ask_for(self, asker: Line, keys: Sequence[str]) -> None:
        try:
            answers = await asker.ask_all([("LLEN", key) for key in keys])
        except BrokerRefused as error:
            if len(keys) == 1:
                self._replied(keys[0], error)
            else:
                for key in keys:
                    await self._ask_for(asker, [key])
        else:
            for key, length in zip(keys, answers, strict=True):
                self._replied(key, length)

    async def _listen(self, listener: Line) -> None:
        while True:
            match await listener.receive(2 * _SAFETY_S):
                case [b"message", _, list() as changed]:
                    self._look(key for key in map(bytes.decode, changed) if key in self._waiting)
                case [b"message", *_]:  # the whole database was emptied
                    self._look(self._waiting)

    def _look(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._questions.put_nowait(key)

    def _replied(self, key: str, answer: int | BrokerRefused) -> None:
        for future in self._waiting.get(key, ()):
            if future.done():
                continue
            if isinstance(answer, BrokerRefused):
                future.set_exception(answer)
            elif answer:
                future.set_result(None)

    async def _poll(self) -> None:
        while self._waiting:
            for key in tuple(self._waiting):
                self._replied(key, await self._length(key))
            await asyncio.sleep(random.uniform(*_POLL_S))

    async def _length(self, key: str) -> int | BrokerRefused:
        try:
            return int(await self._client.execute("LLEN", key))
        except BrokerRefused as error:
            return error
