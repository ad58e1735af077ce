"""What a producer writes and reads, besides the result queue: requests, marks, mailboxes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from async_processor.fields import Confirm
from async_processor.redis_io.client import Argument, Command, RedisClient
from async_processor.redis_io.producer_keys import PAYLOAD_GRACE_S, receipt_key, sequence_key
from async_processor.redis_io.scripts import Script
from async_processor.wire.envelope import score
from async_processor.wire.names import active_key, cancel_key, payload_key

_SUBMIT: Final = Script("submit")
_ENQUEUE: Final = Script("enqueue")
_CANCEL: Final = Script("cancel")
_CANCEL_LIFETIME_S: Final = 7 * 24 * 3600
_SEQUENCE_GRACE_S: Final = 3600


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is ready to be enqueued.

    Its message is `head`, the sequence number that the broker gives, `tail`. `deadline` is in
    Unix seconds; `payload` is stored apart if it is not None.
    """

    id: str
    request_token: str
    deadline: int
    head: bytes
    tail: bytes
    payload: bytes | None = None

    @property
    def size(self) -> int:
        """Bytes, more or less."""
        return len(self.head) + len(self.tail) + len(self.payload or b"")

    def body(self, seq: int) -> bytes:
        """The whole message."""
        return self.head + str(seq).encode() + self.tail


class ProducerStore:
    """One broker. Every method may raise BrokerUnavailable, and can then be repeated."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    async def now(self) -> float:
        """The broker's Unix time in seconds."""
        seconds, microseconds = await self._client.execute("TIME")
        return int(seconds) + int(microseconds) / 1e6

    async def enqueue(
        self,
        queue_name: str,
        receipt: str,
        drafts: Sequence[Draft],
        lifetime: float,
        confirm: Confirm,
    ) -> bool:
        """Enqueue all in one step, once per receipt.

        The receipt stays for `lifetime` seconds, unless it is dropped before. False when it is
        written and as many replicas as asked for have not confirmed it.
        """
        if self._client.clustered:
            await self._enqueue_in_cluster(queue_name, receipt, drafts, lifetime)
            return True
        keys = [queue_name, receipt_key(queue_name, receipt)]
        arguments: list[Argument] = [_milliseconds(lifetime)]
        for draft in drafts:
            keys += _keys(queue_name, draft)
            arguments += _arguments(draft)
        _, confirmed = await _SUBMIT.run_confirmed(self._client, keys, arguments, confirm)
        return confirmed

    async def _enqueue_in_cluster(
        self, queue_name: str, receipt: str, drafts: Sequence[Draft], lifetime: float
    ) -> None:
        """A request's own keys lie in other slots than its queue, so they are written before it."""
        own_receipt = receipt_key(queue_name, receipt)
        if await self._client.execute("EXISTS", own_receipt):
            return
        sequences = [sequence_key(queue_name, draft.deadline) for draft in drafts]
        numbers = await self._client.pipeline([("INCR", key) for key in sequences])
        await self._client.pipeline(
            [mark for draft in drafts for mark in _marks(queue_name, draft)]
        )
        arguments: list[Argument] = [_milliseconds(lifetime)]
        for draft, seq in zip(drafts, numbers, strict=True):
            arguments += [repr(score(draft.deadline, seq)), draft.body(seq)]
        await _ENQUEUE.run(self._client, [queue_name, own_receipt], arguments)

    async def drop_receipts(self, queue_name: str, receipts: Sequence[str]) -> None:
        """Their producer has heard that its chunks were enqueued."""
        await self._client.execute("UNLINK", *(receipt_key(queue_name, one) for one in receipts))

    async def cancel(self, request_id: str, request_token: str) -> bool:
        """Mark a request as cancelled: of its generations the named one, else the last.

        False where there is none that is still open.
        """
        active, cancel = active_key(request_id), cancel_key(request_id)
        if self._client.clustered:
            return await self._cancel_in_cluster(active, cancel, request_token)
        arguments: list[Argument] = [request_token, _CANCEL_LIFETIME_S]
        return bool(await _CANCEL.run(self._client, [active, cancel], arguments))

    async def _cancel_in_cluster(self, active: str, cancel: str, request_token: str) -> bool:
        """The mark names the generation, so one that ends in between is not mistaken."""
        found = await self._client.execute("GET", active)
        if found is None or request_token not in ("", found.decode()):
            return False
        await self._client.execute("SET", cancel, found, "EX", _CANCEL_LIFETIME_S)
        return True

    async def peek(self, mailbox: str) -> bytes | None:
        """The result in a mailbox, which stays there."""
        body: bytes | None = await self._client.execute("LINDEX", mailbox, -1)
        return body

    async def discard(self, mailbox: str) -> None:
        """Delete a mailbox."""
        await self._client.execute("UNLINK", mailbox)


def _keys(queue_name: str, draft: Draft) -> list[str]:
    return [
        sequence_key(queue_name, draft.deadline),
        active_key(draft.id),
        cancel_key(draft.id),
        payload_key(draft.id, draft.request_token),
    ]


def _arguments(draft: Draft) -> list[Argument]:
    stored = draft.payload is not None
    return [
        draft.head,
        draft.tail,
        draft.request_token,
        draft.deadline,
        int(stored),
        draft.payload or b"",
    ]


def _marks(queue_name: str, draft: Draft) -> Iterator[Command]:
    """Single-key commands that may be executed in any order, and again."""
    sequence, active, cancel, stored = _keys(queue_name, draft)
    yield "EXPIREAT", sequence, draft.deadline + _SEQUENCE_GRACE_S
    yield "DEL", cancel
    yield "SET", active, draft.request_token, "EXAT", draft.deadline
    if draft.payload is not None:
        yield "SET", stored, draft.payload, "EXAT", draft.deadline + PAYLOAD_GRACE_S


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
