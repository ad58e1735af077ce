"""A connection that redis-py has opened, spoken over directly.

redis-py knows how to get in: names, TLS, logins, Sentinels. What follows a thousand times a second
is bytes out and answers in, and that is all there is here: an answer wakes whoever asked in the
turn in which its bytes come, and a connection that has ended says so without being tried.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final, cast

import hiredis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import InvalidResponse, ResponseError

_INCOMPLETE: Final = object()
_STALE_SECONDS: Final = 60.0
"""A firewall may have forgotten a connection that nobody has used for so long."""


class RawConnection(asyncio.Protocol):
    """Answers come in the order of their commands; one task at a time asks and receives."""

    def __init__(self, opened: AbstractConnection) -> None:
        """Take over a connection that is open and on which nothing is under way."""
        self.opened = opened
        writer = opened._writer  # noqa: SLF001 - redis-py shows its streams to nobody
        assert writer is not None  # noqa: S101 - it has just been opened
        self._loop = asyncio.get_running_loop()
        self._transport = cast("asyncio.Transport", writer.transport)
        self._opener = self._transport.get_protocol()
        self._reader = hiredis.Reader(
            protocolError=InvalidResponse, replyError=ResponseError, notEnoughData=_INCOMPLETE
        )
        self._answers: deque[Any] = deque()
        self._wanted = 0
        self._there: asyncio.Future[None] | None = None
        """Done when as many as are wanted have come, or it has ended."""
        self._ended: Exception | None = None
        self._used_at = self._loop.time()
        self._transport.set_protocol(self)

    @property
    def usable(self) -> bool:
        """Whether the next command may go over it; nobody asks or receives just now."""
        return (
            not self._transport.is_closing()
            and not self._answers
            and self._loop.time() - self._used_at < _STALE_SECONDS
        )

    def send(self, commands: bytes) -> None:
        """Send packed commands; after the end of the connection, which `receive` tells, nothing."""
        if not self._transport.is_closing():  # else uvloop raises RuntimeError
            self._transport.write(commands)
        self._used_at = self._loop.time()

    async def receive(self, count: int) -> list[Any]:
        """The next `count` answers, the server's errors (ResponseError) among them.

        Raises what redis-py raises when the connection ends before. After a cancellation it must
        be closed: the answers that are still to come would be taken for those of other commands.
        """
        if len(self._answers) < count:
            await self._arrival(count)
        return [self._answers.popleft() for _ in range(count)]

    async def _arrival(self, count: int) -> None:
        if self._ended is not None:
            raise self._ended
        self._wanted, self._there = count, self._loop.create_future()
        await self._there

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while (answer := self._reader.gets()) is not _INCOMPLETE:
                self._answers.append(answer)
        except InvalidResponse as error:
            self._end(error)
        if len(self._answers) >= self._wanted:
            self._wake(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._opener.connection_lost(exc)  # whoever closes it by redis-py waits for this
        self._end(exc or ConnectionLost("it was closed"))

    def _end(self, error: Exception) -> None:
        self._ended = self._ended or error
        self._transport.abort()
        self._wake(error)

    def _wake(self, error: Exception | None) -> None:
        if self._there is None or self._there.done():
            return
        if error is None:
            self._there.set_result(None)
        else:
            self._there.set_exception(error)

    def abort(self) -> None:
        """Close at once, also with bytes unsent that a server does not take."""
        self._transport.abort()
