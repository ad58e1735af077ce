"""A `RedisClient` over connections to one server, named directly or by Sentinel."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, cast

import hiredis
from redis.asyncio import ConnectionPool
from redis.exceptions import ResponseError

from async_processor.errors import BrokerUnavailable
from async_processor.redis_io import errors
from async_processor.redis_io.address import COMMAND_SECONDS, CONNECT_SECONDS, command_seconds
from async_processor.redis_io.client import Argument, Command, Line
from async_processor.redis_io.outage import Outage
from async_processor.redis_io.raw_connection import RawConnection
from async_processor.timeouts import Timeouts

_pack: Final = cast("Callable[[tuple[Argument, ...]], bytes]", hiredis.pack_command)
"""Its own annotation means a tuple of one."""


class PooledClient:
    """Commands go over whichever connection is free; `place` is the server's name in errors.

    `pool` opens the connections and bounds their number.
    """

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
        self._talks = _Talks(place)
        self._place = place
        self._outage = outage
        self._close_too = close_too
        self._connections: set[RawConnection] = set()
        """The free ones, and those that somebody uses."""
        self._free: list[RawConnection] = []
        self._closed = False

    @property
    def outage(self) -> Outage:
        return self._outage

    async def execute(self, *command: Argument, wait: float = 0) -> Any:
        (answer,) = await self._exchange((command,), wait)
        return answer

    async def pipeline(self, commands: Sequence[Command], wait: float = 0) -> list[Any]:
        return await self._exchange(commands, wait) if commands else []

    async def line(self) -> Line:
        return PooledLine(await self._opened(), self._talks, self._close)

    async def close(self) -> None:
        """What is under way loses its answer; what comes later leaves no connection behind."""
        self._closed = True
        for connection in self._connections:
            connection.abort()  # else redis-py waits until the server has taken all that was sent
        await self._close_free()
        await self._pool.aclose()
        if self._close_too is not None:
            await self._close_too()

    async def _exchange(self, commands: Sequence[Command], wait: float) -> list[Any]:
        try:
            answers = await self._exchanged(commands, wait)
            answers = [_accepted(answer) for answer in answers]
        except BrokerUnavailable:
            self._outage.failed()
            raise
        self._outage.answered()
        return answers

    async def _exchanged(self, commands: Sequence[Command], wait: float) -> list[Any]:
        connection = await self._usable()
        try:
            answers = await self._talks.exchange(connection, commands, wait=wait)
        except BaseException as error:
            await self._close(connection)
            if isinstance(error, BrokerUnavailable):
                await self._close_free()  # they lead to the same server
            raise
        self._free.append(connection)
        refusals = (answer for answer in answers if isinstance(answer, ResponseError))
        if self._closed or any(map(errors.leads_astray, refusals)):
            await self._close_free()
        return answers

    async def _usable(self) -> RawConnection:
        """The free connection that was used last, or a new one."""
        while self._free:
            connection = self._free.pop()
            if connection.usable:
                return connection
            await self._close(connection)
        return await self._opened()

    async def _opened(self) -> RawConnection:
        try:
            async with asyncio.timeout(CONNECT_SECONDS + COMMAND_SECONDS):
                opened = await self._pool.get_connection()  # type: ignore[no-untyped-call]
                connection = RawConnection(opened)
        except TimeoutError:
            raise BrokerUnavailable(f"Redis at {self._place} lets nobody in") from None
        except errors.FOREIGN as error:
            raise errors.from_connecting(error, self._place) from None
        self._connections.add(connection)
        return connection

    async def _close_free(self) -> None:
        while self._free:
            await self._close(self._free.pop())

    async def _close(self, connection: RawConnection) -> None:
        self._connections.discard(connection)
        connection.abort()
        await connection.opened.disconnect(nowait=True)
        await self._pool.release(connection.opened)


class PooledLine:
    """A `Line` over a connection of its own, which is not used again: what `close` ends with it
    are subscriptions and tracking."""

    def __init__(
        self,
        connection: RawConnection,
        talks: _Talks,
        close: Callable[[RawConnection], Awaitable[None]],
    ) -> None:
        self._connection = connection
        self._talks = talks
        self._close = close

    async def ask(self, *command: Argument) -> Any:
        (answer,) = await self.ask_all((command,))
        return answer

    async def ask_all(self, commands: Sequence[Command]) -> list[Any]:
        answers = await self._talks.exchange(self._connection, commands)
        return [_accepted(answer) for answer in answers]

    async def send(self, *command: Argument) -> None:
        self._connection.send(_packed((command,)))

    async def receive(self, timeout: float) -> Any:
        (answer,) = await self._talks.receive(self._connection, 1, timeout)
        return _accepted(answer)

    async def close(self) -> None:
        await self._close(self._connection)


class _Talks:
    """Exchanges with one server, each limited in time; failures are told in our own words."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._timeouts = Timeouts()

    async def exchange(
        self, connection: RawConnection, commands: Sequence[Command], *, wait: float = 0
    ) -> list[Any]:
        """Send commands at once and receive an answer, or the server's error, for each.

        `wait` is how many seconds they block at most, together. Raises as `receive`.
        """
        packed = _packed(commands)
        connection.send(packed)
        return await self.receive(connection, len(commands), command_seconds(len(packed)) + wait)

    async def receive(self, connection: RawConnection, count: int, seconds: float) -> list[Any]:
        """The next answers; raises AnswerLost without them after so many seconds, or when the
        connection ends before."""
        try:
            with self._timeouts.limit(seconds):
                return await connection.receive(count)
        except TimeoutError:
            text = f"Redis at {self._place} gave no answer for {seconds:g} s"
            raise errors.AnswerLost(text) from None
        except errors.FOREIGN as error:
            raise errors.from_talking(error, self._place) from None


def _packed(commands: Sequence[Command]) -> bytes:
    """What redis-py's own packing makes in Python, in a seventh of the time."""
    return b"".join(map(_pack, map(tuple, commands)))


def _accepted(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise errors.from_answer(answer)
    return answer
