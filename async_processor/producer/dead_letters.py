"""What an operator does with dead letters: look, move them back, delete them.

A letter that is moved back is the same request: it keeps its token, so its mailbox, its stored
payload and its handle go on working; its count of retries starts again.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import msgspec

from async_processor.producer.connection import Connection
from async_processor.producer.deadline import Deadline, unix_deadline
from async_processor.producer.errors import InvalidSubmission
from async_processor.redis_io.dead_letter_store import DeadLetterStore
from async_processor.wire import dead_letter, envelope, scan
from async_processor.wire.dead_letter import DeadLetter
from async_processor.wire.envelope import Envelope, InvalidMessage

_PAGE: Final = 50
_encoder: Final = msgspec.json.Encoder()


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter as it lies on its queue, and what can be read of it.

    `content` is None where something else lies there.
    """

    raw: bytes
    content: DeadLetter | None
    message: Envelope | InvalidMessage

    @property
    def id(self) -> str:
        """The request's id, as far as there is one."""
        match self.message:
            case Envelope():
                return self.message.request.id
            case InvalidMessage():
                return self.message.id


class DeadLetters:
    """The dead-letter queue `name`."""

    def __init__(self, broker: Connection, name: str) -> None:
        self._broker = broker
        self._name = name

    async def each(self) -> AsyncIterator[Letter]:
        """Every letter, the oldest first."""
        skip = 0
        while page := await self._page(skip):
            skip += len(page)
            for raw in page:
                yield _read(raw)

    async def sweep(self, act: Callable[[Letter], Awaitable[bool]]) -> None:
        """Hand every letter that is there now to `act`, which says whether it is gone then."""
        kept, left = 0, await self._broker(self._store.length)
        while left > 0 and (page := await self._page(kept)):
            for raw in page[:left]:
                kept += not await act(_read(raw))
            left -= len(page)

    async def purge(self, letter: Letter) -> bool:
        """Delete a letter; False when somebody else has moved or deleted it."""
        return await self._broker(lambda: self._store.purge(letter.raw))

    async def requeue(self, letter: Letter, deadline: Deadline | None = None) -> bool:
        """Move a letter back into its queue; False when somebody else has moved or deleted it.

        Raises:
            DeadlinePassed: its deadline has passed; give a new one.
            InvalidSubmission: its message cannot be processed, whatever the deadline.
        """
        message, content = letter.message, letter.content
        if isinstance(message, InvalidMessage) or content is None:
            raise InvalidSubmission("", f"the message cannot be processed: {message}")
        wanted = message.request.deadline if deadline is None else deadline
        until = unix_deadline(wanted, self._broker.clock.now())
        token = message.request_token or secrets.token_hex(16)
        base = message.rewritten(retry_count=0, request_queue_name=content.queue_name)
        return await self._store.requeue(
            letter.raw,
            content.queue_name,
            lambda seq: renewed(base, until, token, seq),
            request_id=message.request.id,
            request_token=token,
            deadline=until,
        )

    async def _page(self, skip: int) -> list[bytes]:
        return list(await self._broker(lambda: self._store.page(skip, _PAGE)))

    @property
    def _store(self) -> DeadLetterStore:
        return DeadLetterStore(self._broker.client, self._name)


def renewed(message: bytes, deadline: int, request_token: str, seq: int) -> bytes:
    """An envelope with another deadline (Unix seconds) and place; all else byte for byte."""
    outer = scan.members(message)
    internal = scan.members(outer["internal"])
    data = scan.members(outer["data"])
    internal |= {"request_token": _encoder.encode(request_token), "enqueue_seq": b"%d" % seq}
    data["deadline"] = b"%d" % deadline
    outer |= {"internal": _joined(internal), "data": _joined(data)}
    return _joined(outer)


def _joined(fields: dict[str, bytes]) -> bytes:
    members = (_encoder.encode(name) + b":" + value for name, value in fields.items())
    return b"{" + b",".join(members) + b"}"


def _read(raw: bytes) -> Letter:
    try:
        content = dead_letter.decode(raw)
    except ValueError:
        content = None
    body = b"" if content is None else content.body
    return Letter(raw=raw, content=content, message=envelope.examine(body))
