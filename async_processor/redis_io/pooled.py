"""A `RedisClient` over a pool of connections to one server, named directly or by Sentinel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ResponseError

from async_processor.errors import BrokerUnavailable
from async_processor.redis_io import errors
from async_processor.redis_io.address import COMMAND_SECONDS
from async_processor.redis_io.client import Argument, Command, Line
from async_processor.redis_io.outage import Outage


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
        (answer,) = await self._exchange((command,), COMMAND_SECONDS + wait)
        return answer

    async def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        return await self._exchange(commands, COMMAND_SECONDS) if commands else []

    async def line(self) -> Line:
        return PooledLine(self._pool, await self._connected(), self._place)

    async def close(self) -> None:
        await self._pool.aclose()
        if self._close_too is not None:
            await self._close_too()

    async def _exchange(self, commands: Sequence[Command], seconds: float) -> list[Any]:
        try:
            async with self._connection() as connection:
                answers = await exchange(connection, commands, seconds, self._place)
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
        try:
            connection: AbstractConnection = await self._pool.get_connection()  # type: ignore[no-untyped-call]
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
        answers = await exchange(self._connection, commands, COMMAND_SECONDS, self._place)
        return [_accepted(answer) for answer in answers]

    async def send(self, *command: Argument) -> None:
        try:
            await self._connection.send_command(*command, check_health=False)
        except errors.FOREIGN as error:
            raise errors.from_talking(error, self._place) from None

    async def receive(self, timeout: float) -> Any:
        (answer,) = await _answers(self._connection, 1, timeout, self._place)
        return _accepted(answer)

    async def close(self) -> None:
        # Tracking and subscriptions end with the connection: it must not go back as it is.
        await self._connection.disconnect(nowait=True)
        await self._pool.release(self._connection)


async def exchange(
    connection: AbstractConnection, commands: Sequence[Command], seconds: float, place: str
) -> list[Any]:
    """Send commands at once and read an answer, or the server's error, for each."""
    try:
        await connection.send_packed_command(connection.pack_commands(commands))
    except errors.FOREIGN as error:
        raise errors.from_talking(error, place) from None
    return await _answers(connection, len(commands), seconds, place)


async def _answers(
    connection: AbstractConnection, count: int, seconds: float, place: str
) -> list[Any]:
    # redis-py's own limit answers None, which is an answer too; so it is put out of reach, and
    # this one ends the read like a cancellation, which closes the connection.
    try:
        async with asyncio.timeout(seconds):
            return [await _answer(connection, 2 * seconds) for _ in range(count)]
    except TimeoutError:
        raise errors.AnswerLost(f"Redis at {place} gave no answer for {seconds:g} s") from None
    except errors.FOREIGN as error:
        raise errors.from_talking(error, place) from None


async def _answer(connection: AbstractConnection, seconds: float) -> Any:
    try:
        return await connection.read_response(timeout=seconds)
    except ResponseError as error:
        return error


def _accepted(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise errors.from_answer(answer)
    return answer
