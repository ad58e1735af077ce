"""A `RedisClient` over a pool of connections to one server, named directly or by Sentinel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, cast

import hiredis
from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ResponseError

from async_processor.errors import BrokerUnavailable
from async_processor.redis_io import errors
from async_processor.redis_io.address import COMMAND_SECONDS, CONNECT_SECONDS, command_seconds
from async_processor.redis_io.client import Argument, Command, Line
from async_processor.redis_io.outage import Outage

_pack: Final = cast("Callable[[tuple[Argument, ...]], bytes]", hiredis.pack_command)
"""Its own annotation means a tuple of one."""


class PooledClient:
    """Commands go over whichever connection is free; `place` is the server's name in errors."""

    clustered = False

    def __init__(
        self,
        pool: ConnectionPool,
        *,
        place: str,
        outage: Outage,
        close_too: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._pool = pool
        self._place = place
        self._outage = outage
        self._close_too = close_too

    @property
    def outage(self) -> Outage:
        return self._outage

    async def execute(self, *command: Argument, wait: float = 0) -> Any:
        (answer,) = await self._exchange((command,), wait)
        return answer

    async def pipeline(self, commands: Sequence[Command], wait: float = 0) -> list[Any]:
        return await self._exchange(commands, wait) if commands else []

    async def line(self) -> Line:
        return PooledLine(self._pool, await self._connected(), self._place)

    async def close(self) -> None:
        await self._pool.aclose()
        if self._close_too is not None:
            await self._close_too()

    async def _exchange(self, commands: Sequence[Command], wait: float) -> list[Any]:
        try:
            async with self._connection() as connection:
                answers = await exchange(connection, commands, self._place, wait=wait)
            answers = [_accepted(answer) for answer in answers]
        except BrokerUnavailable:
            self._outage.failed()
            raise
        self._outage.answered()
        return answers

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[AbstractConnection]:
        connection = await self._connected()
        try:
            yield connection
        finally:
            await self._pool.release(connection)

    async def _connected(self) -> AbstractConnection:
        connection: AbstractConnection
        try:
            async with asyncio.timeout(CONNECT_SECONDS + COMMAND_SECONDS):
                connection = await self._pool.get_connection()  # type: ignore[no-untyped-call]
        except TimeoutError:
            raise BrokerUnavailable(f"Redis at {self._place} lets nobody in") from None
        except errors.FOREIGN as error:
            raise errors.from_connecting(error, self._place) from None
        return connection


class PooledLine:
    """A `Line` over a connection that its pool has lent out."""

    def __init__(self, pool: ConnectionPool, connection: AbstractConnection, place: str) -> None:
        self._pool = pool
        self._connection = connection
        self._place = place

    async def ask(self, *command: Argument) -> Any:
        (answer,) = await self.ask_all((command,))
        return answer

    async def ask_all(self, commands: Sequence[Command]) -> list[Any]:
        answers = await exchange(self._connection, commands, self._place)
        return [_accepted(answer) for answer in answers]

    async def send(self, *command: Argument) -> None:
        with _translated(self._place, COMMAND_SECONDS):
            async with asyncio.timeout(COMMAND_SECONDS):
                await self._connection.send_command(*command, check_health=False)

    async def receive(self, timeout: float) -> Any:
        return _accepted(await receive(self._connection, timeout, self._place))

    async def close(self) -> None:
        # Tracking and subscriptions end with the connection: it must not go back as it is.
        await self._connection.disconnect(nowait=True)
        await self._pool.release(self._connection)


async def exchange(
    connection: AbstractConnection, commands: Sequence[Command], place: str, *, wait: float = 0
) -> list[Any]:
    """Send commands at once and read an answer, or the server's error, for each.

    `wait` is how many seconds they block at most, together.
    """
    packed = _packed(commands)
    seconds = command_seconds(len(packed)) + wait
    with _translated(place, seconds):
        async with asyncio.timeout(seconds):
            await connection.send_packed_command(packed)
            return [await _answer(connection, seconds) for _ in commands]


def _packed(commands: Sequence[Command]) -> bytes:
    """What redis-py's own packing makes in Python, in a seventh of the time."""
    return b"".join(map(_pack, map(tuple, commands)))


async def receive(connection: AbstractConnection, seconds: float, place: str) -> Any:
    """The next answer or message."""
    with _translated(place, seconds):
        async with asyncio.timeout(seconds):
            return await _answer(connection, seconds)


@contextmanager
def _translated(place: str, seconds: float) -> Iterator[None]:
    try:
        yield
    except TimeoutError:
        raise errors.AnswerLost(f"Redis at {place} gave no answer for {seconds:g} s") from None
    except errors.FOREIGN as error:
        raise errors.from_talking(error, place) from None


async def _answer(connection: AbstractConnection, seconds: float) -> Any:
    # redis-py's own limit answers None, which is an answer too; so it is put out of reach of the
    # caller's, which ends the read like a cancellation and closes the connection.
    try:
        return await connection.read_response(timeout=2 * seconds)
    except ResponseError as error:
        if errors.is_last(error):
            await connection.disconnect(nowait=True)
        return error


def _accepted(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise errors.from_answer(answer)
    return answer
