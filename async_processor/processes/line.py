"""What the supervisor and a process ask each other, over one stream between them.

Each side may ask at any time, and several questions may be open at once. A message is its length in
four bytes and MessagePack. When the other side is gone the line ends, and so do open questions.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from async_processor.errors import AsyncProcessorError
from async_processor.telemetry.logs import get_logger

Answers = Mapping[str, Callable[[Any], Awaitable[Any]]]
"""By the name of a question, what answers it; given what was sent along."""

_LENGTH_BYTES: Final = 4


class LineEnded(AsyncProcessorError):
    """The process at the other end is gone."""


class Refused(AsyncProcessorError):
    """The other side could not do what it was asked; the message says why."""


class _Question(msgspec.Struct, frozen=True, tag=True, array_like=True):
    number: int
    name: str
    content: Any


class _Answer(msgspec.Struct, frozen=True, tag=True, array_like=True):
    number: int
    content: Any
    fault: str


_log = get_logger(__name__)

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Question | _Answer).decode


class Line:
    """One end of it, opened first; `run` reads, and has to run for anything to be heard."""

    def __init__(self, own_end: socket.socket, answers: Answers) -> None:
        self._own_end = own_end
        self._answers = dict(answers)
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._numbers = itertools.count()
        self._open: dict[int, asyncio.Future[Any]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._ended = False

    async def open(self) -> None:
        """From now on questions can be asked."""
        self._reader, self._writer = await asyncio.open_unix_connection(sock=self._own_end)

    async def run(self) -> None:
        """Listen, once it is open, until the other side is gone."""
        assert self._reader is not None  # noqa: S101 - opened before
        reader = self._reader
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(_LENGTH_BYTES))
                self._heard(_decode(await reader.readexactly(size)))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._end()

    def answer(self, more: Answers) -> None:
        """From now on these questions are answered as well."""
        self._answers |= more

    async def ask(self, name: str, content: Any = None, *, within: float | None = None) -> Any:
        """Ask, and wait for the answer, `within` seconds.

        Raises:
            LineEnded: the other side is gone.
            Refused: it answers that it cannot.
            TimeoutError: it does not answer in time.
        """
        if self._ended:
            raise LineEnded
        number = next(self._numbers)
        answer = self._open[number] = asyncio.get_running_loop().create_future()
        try:
            self._send(_Question(number, name, content))
            async with asyncio.timeout(within):
                return await answer
        finally:
            self._open.pop(number, None)

    def _heard(self, message: _Question | _Answer) -> None:
        if isinstance(message, _Question):
            task = asyncio.get_running_loop().create_task(self._answer(message))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
            return
        waiting = self._open.get(message.number)
        if waiting is None or waiting.done():
            return  # who asked does not wait any more
        if message.fault:
            waiting.set_exception(Refused(message.fault))
        else:
            waiting.set_result(message.content)

    async def _answer(self, question: _Question) -> None:
        try:
            content = await self._answers[question.name](question.content)
            self._send(_Answer(question.number, content, ""))
        except AsyncProcessorError as error:
            self._send(_Answer(question.number, None, str(error)))
        except Exception as error:  # noqa: BLE001 - who asked must not wait for ever
            _log.exception("question_not_answered", question=question.name)
            self._send(_Answer(question.number, None, repr(error)))

    def _send(self, message: _Question | _Answer) -> None:
        """To nobody once the line is closing: `run` is about to hear of it."""
        if self._writer is not None and not self._writer.is_closing():
            data = _encode(message)
            self._writer.write(len(data).to_bytes(_LENGTH_BYTES) + data)

    def _end(self) -> None:
        self._ended = True
        for waiting in self._open.values():
            if not waiting.done():
                waiting.set_exception(LineEnded())
        if self._writer is not None:
            self._writer.close()
