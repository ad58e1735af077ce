"""Due retries go back to their own queues, under their own deadlines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from async_processor.redis_io.client import Argument
from async_processor.redis_io.keys import stranded_key
from async_processor.redis_io.scripts import PROMOTE
from async_processor.telemetry.logs import get_logger
from async_processor.transport.redis_sorted_set.link import Link
from async_processor.wire import dead_letter, envelope
from async_processor.wire.envelope import Envelope
from async_processor.wire.names import slot_tag

_AT_ONCE: Final = 100
_OTHER_KEYS: Final = 3
"""Keys of promote.lua before the queues."""
_BURIED: Final = 2

_log = get_logger(__name__)


class _Move(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Where a due retry goes; without a queue to the dead letters. `reason` says why it might."""

    body: bytes
    queue_name: str = ""
    score: float = 0.0
    reason: str


class Retries:
    """The retry queue, shared by all queues of the transport and by all replicas."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._retry = link.settings.retry_queue_name

    async def promote(self) -> float | None:
        """Move what is due; returns when the next is due (Unix time), None with none left."""
        while True:
            due, first = await self._read()
            if not due:
                return first
            moved = await self._move([self._destination(body) for body in due])
            if len(due) < _AT_ONCE or not moved:
                return await self._next_due()

    async def _read(self) -> tuple[list[bytes], float | None]:
        now = repr(self._link.clock.now())
        due, first = await self._link.client.pipeline(
            [
                ("ZRANGEBYSCORE", self._retry, "-inf", now, "LIMIT", 0, _AT_ONCE),
                ("ZRANGE", self._retry, 0, 0, "WITHSCORES"),
            ]
        )
        return due, _score(first)

    async def _next_due(self) -> float | None:
        return _score(await self._link.client.execute("ZRANGE", self._retry, 0, 0, "WITHSCORES"))

    def _destination(self, body: bytes) -> _Move:
        """The queue is the one that the message was claimed from: it was stamped with it."""
        message = envelope.examine(body)
        if not isinstance(message, Envelope):
            return _Move(body=body, reason=f"a retry that cannot be read: {message}")
        queue_name = message.request_queue_name
        fault = self._fault(queue_name)
        if fault:
            return _Move(body=body, reason=f"a retry whose request_queue_name {fault}")
        return _Move(
            body=body,
            queue_name=queue_name,
            score=message.score,
            reason=f"a retry for {queue_name}, which cannot be written as a sorted set",
        )

    def _fault(self, queue_name: str) -> str:
        if not queue_name:
            return "is empty"
        if queue_name == self._retry:
            return "is the retry queue"
        if self._link.client.clustered and slot_tag(queue_name) != slot_tag(self._retry):
            return f"({queue_name}) lies in another slot than the retry queue"
        return ""

    async def _move(self, moves: Sequence[_Move]) -> int:
        """Returns how many found a place."""
        queues = sorted({move.queue_name for move in moves if move.queue_name})
        keys = (
            self._retry,
            self._link.settings.dead_letter_queue_name,
            stranded_key(self._retry),
            *queues,
        )
        index = {name: place for place, name in enumerate(queues, _OTHER_KEYS + 1)}
        arguments = [argument for move in moves for argument in self._arguments(move, index)]
        answers = await PROMOTE.run(self._link.client, keys, arguments)
        self._report(answers)
        return sum(isinstance(answer, int) for answer in answers)

    def _arguments(self, move: _Move, index: dict[str, int]) -> tuple[Argument, ...]:
        letter = dead_letter.encode(
            move.body,
            reason=move.reason,
            queue_name=move.queue_name,
            buried_at=self._link.clock.now(),
            deliveries=0,
        )
        return move.body, index.get(move.queue_name, 0), repr(move.score), letter

    def _report(self, answers: Iterable[int | bytes]) -> None:
        for answer in answers:
            if answer == _BURIED:
                _log.error("retry_buried", queue=self._retry)
            elif isinstance(answer, bytes):
                _log.error("retry_stuck", queue=self._retry, error=answer.decode(errors="replace"))


def _score(first: Sequence[bytes]) -> float | None:
    return float(first[1]) if first else None
