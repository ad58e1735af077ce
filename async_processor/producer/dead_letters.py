"""What an operator does with dead letters: look, move them back, delete them.

A letter that is moved back is the same request: it keeps its token, so its mailbox, its stored
payload and its handle go on working; its count of retries starts again. It runs again and gets a
result, also where its sender was told before that it has failed. A letter that holds a result which
no list took is not moved back but answered: the result goes where it belongs.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

import msgspec

from async_processor.producer.connection import Connection
from async_processor.producer.deadline import Deadline, unix_deadline
from async_processor.producer.errors import InvalidSubmission
from async_processor.redis_io.dead_letter_store import DeadLetterStore
from async_processor.wire import dead_letter, envelope, scan
from async_processor.wire.dead_letter import DeadLetter
from async_processor.wire.envelope import Envelope, InvalidMessage

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

    @property
    def holds_result(self) -> bool:
        """Whether the only copy of the request's result lies in it."""
        return self.content is not None and self.content.result is not None


class DeadLetters:
    """The dead-letter queue `name`.

    `results` is where a result goes whose letter names no list, or none in reach.
    """

    def __init__(self, broker: Connection, name: str, *, results: str) -> None:
        self._broker = broker
        self._name = name
        self._results = results

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
            InvalidSubmission: its message cannot be processed, whatever the deadline; or it holds
                a result, which is to be posted.
            BrokerRefused: its queue is none.
        """
        message, content = letter.message, letter.content
        if isinstance(message, InvalidMessage) or content is None:
            raise InvalidSubmission("", f"the message cannot be processed: {message}")
        if letter.holds_result:
            raise InvalidSubmission("", "it has run, and its result lies in the letter: post that")
        wanted = message.request.deadline if deadline is None else deadline
        until = unix_deadline(wanted, self._broker.clock.now())
        await self._keep_payload(message, until)
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

    async def _keep_payload(self, message: Envelope, until: int) -> None:
        key = message.payload_ref
        if key and not await self._broker(lambda: self._store.keep_payload(key, until)):
            fault = f"the stored payload {key!r} is gone; submit the request anew"
            raise InvalidSubmission("payload_ref", fault)

    async def post(self, letter: Letter) -> bool:
        """Push the result that a letter holds; False when somebody else has moved or deleted it.

        Raises:
            InvalidSubmission: it holds none.
            BrokerRefused: the result's list still does not take it.
        """
        content = letter.content
        if content is None or content.result is None:
            raise InvalidSubmission("", "the letter holds no result")
        places = [place for place in (content.result_queue_name, self._results) if place]
        return await self._store.post(
            letter.raw, content.result.encode(), places, content.result_expires_ms
        )

    async def _page(self, skip: int) -> Sequence[bytes]:
        return await self._broker(lambda: self._store.page(skip))

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
    content: DeadLetter | None
    try:
        content = dead_letter.decode(raw)
        body = content.body
    except (ValueError, RecursionError):
        content, body = None, b""
    return Letter(raw=raw, content=content, message=envelope.examine(body))
