"""Waits for lists to get an item, any number of them on one connection, without polling.

`CLIENT TRACKING` makes the server say when a key changes whose length was asked for. One
connection carries the questions (LLEN) and what the server says by itself; answers come in the
order of the questions. Where tracking is not to be had (an ACL, a proxy), the lists somebody waits
for are looked at every few tens of milliseconds.

Owner of all state: the loop of `start`. Callers of `wait` only add and remove their own futures.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import RedisError, ResponseError

from async_processor.errors import BrokerRefused

_SAFETY_S: Final = 5.0
"""All lists are looked at this often in any case; an answer that takes longer means a dead line."""
_RETRY_S: Final = (0.05, 0.5)
_POLL_S: Final = (0.02, 0.05)


class ListWatch:
    """Tells when a list has an item.

    `connect` makes a connection that is not open yet and speaks RESP3; `client` is for servers
    that refuse tracking.
    """

    def __init__(self, client: Redis, connect: Callable[[], Any]) -> None:
        self._client = client
        self._connect = connect
        self._waiting: dict[bytes, set[asyncio.Future[None]]] = {}
        self._questions: asyncio.Queue[bytes] = asyncio.Queue()
        self._asked: deque[bytes] = deque()
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
        """Return when the list is not empty. Cancelling it leaves nothing behind."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="list-watch")
        name, future = key.encode(), asyncio.get_running_loop().create_future()
        self._waiting.setdefault(name, set()).add(future)
        self._questions.put_nowait(name)
        try:
            await future
        finally:
            self._forget(name, future)

    def _forget(self, name: bytes, future: asyncio.Future[None]) -> None:
        futures = self._waiting.get(name, set())
        futures.discard(future)
        if not futures:
            self._waiting.pop(name, None)

    async def _run(self) -> None:
        attend = self._track
        while True:
            try:
                await attend()
            except* ResponseError:
                attend = self._poll
            except* (RedisError, OSError):
                await asyncio.sleep(random.uniform(*_RETRY_S))

    async def _track(self) -> None:
        async with self._tracked() as connection, asyncio.TaskGroup() as tasks:
            self._asked.clear()
            self._look(self._waiting)
            tasks.create_task(self._ask(connection))
            tasks.create_task(self._listen(connection))

    @asynccontextmanager
    async def _tracked(self) -> AsyncIterator[Any]:
        connection = self._connect()
        try:
            await connection.connect()
            connection._parser.set_invalidation_push_handler(_handed_on)  # noqa: SLF001 - no other door
            await connection.send_command("CLIENT", "TRACKING", "ON")
            await connection.read_response()
            yield connection
        finally:
            await connection.disconnect()

    async def _ask(self, connection: Any) -> None:
        while True:
            names = [await self._questions.get()]
            while not self._questions.empty():
                names.append(self._questions.get_nowait())
            self._asked.extend(names)
            questions = connection.pack_commands([("LLEN", name) for name in names])
            await connection.send_packed_command(questions)

    async def _listen(self, connection: Any) -> None:
        while True:
            try:
                said = await connection.read_response(timeout=_SAFETY_S, push_request=True)
            except ResponseError as error:
                said = error
            self._heard(said)

    def _heard(self, said: Any) -> None:
        match said:
            case int() | ResponseError():
                self._replied(self._asked.popleft(), said)
            case [_, list() as changed]:
                self._look(name for name in changed if name in self._waiting)
            case None if self._asked:
                raise Disconnected("the broker does not answer")
            case _:
                self._look(self._waiting)

    def _look(self, names: Iterable[bytes]) -> None:
        for name in names:
            self._questions.put_nowait(name)

    def _replied(self, name: bytes, answer: int | ResponseError) -> None:
        for future in self._waiting.get(name, ()):
            if future.done():
                continue
            if isinstance(answer, ResponseError):
                future.set_exception(BrokerRefused(str(answer)))
            elif answer:
                future.set_result(None)

    async def _poll(self) -> None:
        while True:
            if not self._waiting:
                await self._questions.get()
            names = list(self._waiting)
            pipeline = self._client.pipeline(transaction=False)
            for name in names:
                pipeline.llen(name)
            answers = await pipeline.execute(raise_on_error=False)
            for name, answer in zip(names, answers, strict=True):
                self._replied(name, answer)
            await asyncio.sleep(random.uniform(*_POLL_S))


async def _handed_on(push: Any) -> Any:
    """Invalidations are read like answers."""
    return push
