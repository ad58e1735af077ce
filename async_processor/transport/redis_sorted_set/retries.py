"""Due retries go back to their own queues, under their own deadlines.

One that cannot be read, or whose own queue does not take it, goes to the first queue of this
transport: there it is claimed and gets its result like everything else. If that one does not take
it either it stays where it is, and is tried again with the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec

from async_processor.redis_io.client import Argument
from async_processor.redis_io.errors import AccessDenied
from async_processor.redis_io.permissions import forbidden_among, permitted
from async_processor.redis_io.scripts import DUE, PROMOTE
from async_processor.telemetry.logs import get_logger
from async_processor.transport.redis_sorted_set.link import Link
from async_processor.wire import envelope
from async_processor.wire.envelope import Envelope
from async_processor.wire.names import slot_tag

_AT_ONCE: Final = 100
_BYTES_AT_ONCE: Final = 4 * 2**20
_MOVED_ELSEWHERE: Final = 2

_log = get_logger(__name__)


class _Move(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Where a due retry goes; without a queue of its own to the first."""

    body: bytes
    queue_name: str
    score: float


class Retries:
    """The retry queue, shared by all queues of the transport and by all replicas."""

    def __init__(self, link: Link, queue_names: Sequence[str]) -> None:
        self._link = link
        self._queue_names = tuple(queue_names)
        self._retry = link.settings.retry_queue_name

    async def promote(self) -> float | None:
        """Move what is due; returns when the next is due (Unix time), None with none left.

        What could not be moved is not the next: it waits for the next call, whenever that is.
        """
        stuck = 0
        while True:
            due, next_due = await self._read(skip=stuck)
            if not due:
                return next_due
            answers = await self._move([self._destination(body) for body in due])
            self._report(answers)
            stuck += sum(isinstance(answer, bytes) for answer in answers)

    async def _read(self, *, skip: int) -> tuple[list[bytes], float | None]:
        """Some that are due, and when the next is; see due.lua."""
        arguments = (repr(self._link.clock.now()), skip, _AT_ONCE, _BYTES_AT_ONCE)
        asked_at = self._link.clock.monotonic()
        told, following, *due = await DUE.run(self._link.client, [self._retry], arguments)
        self._link.hear_time(float(told), asked_at)
        return due, float(following) if following else None

    def _destination(self, body: bytes) -> _Move:
        """The queue is the one that the message was claimed from: it was stamped with it.

        What cannot be read expires at once, so that it waits for no gate.
        """
        message = envelope.examine(body)
        named = message.request_queue_name
        if isinstance(message, Envelope):
            own = "" if self._out_of_reach(named) else named
            return _Move(body=body, queue_name=own, score=message.score)
        own = named if named in self._queue_names else ""
        return _Move(body=body, queue_name=own, score=self._link.clock.now())

    def _out_of_reach(self, queue_name: str) -> bool:
        if queue_name == self._retry:
            return True
        return self._link.client.clustered and slot_tag(queue_name) != slot_tag(self._retry)

    async def _move(self, moves: Sequence[_Move]) -> list[int | bytes]:
        try:
            return await self._run(moves, forbidden=())
        except AccessDenied:
            if not await permitted(self._link.client, [self._retry]):
                raise
            names = [move.queue_name for move in moves if move.queue_name]
            forbidden = await forbidden_among(
                self._link.client, sorted({*names, *self._queue_names[:1]})
            )
            if not forbidden:
                raise
            return await self._run(moves, forbidden=forbidden)

    async def _run(
        self, moves: Sequence[_Move], *, forbidden: Collection[str]
    ) -> list[int | bytes]:
        """An answer for each, as promote.lua says."""
        named = (move.queue_name for move in moves if move.queue_name)
        queues = list(dict.fromkeys([*self._queue_names[:1], *named]))
        places = {"": 0} | {name: place for place, name in enumerate(queues, 2)}
        keys = [self._retry, *(self._retry if name in forbidden else name for name in queues)]
        other = 2 if self._queue_names else 0
        arguments: list[Argument] = []
        for move in moves:
            arguments += (move.body, repr(move.score), places[move.queue_name], other)
        answers: list[int | bytes] = await PROMOTE.run(self._link.client, keys, arguments)
        return answers

    def _report(self, answers: Iterable[int | bytes]) -> None:
        for answer in answers:
            if isinstance(answer, bytes):
                error = answer.decode(errors="replace")
                _log.error("retry_stuck", queue_name=self._retry, error=error)
            elif answer == _MOVED_ELSEWHERE:
                _log.warning("retry_moved_elsewhere", queue_name=self._queue_names[0])
