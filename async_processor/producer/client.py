"""The producer: submits requests, waits for their results, cancels them."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from functools import partial
from typing import Final, Self

from async_processor.fields import Confirm, TlsSettings
from async_processor.producer import message
from async_processor.producer.chunks import chunked
from async_processor.producer.connection import NOT_CONFIRMED, Connection
from async_processor.producer.errors import NoMailbox
from async_processor.producer.message import Route
from async_processor.producer.patience import OnOutage
from async_processor.producer.reading import ResultReader
from async_processor.producer.receipts import Receipts
from async_processor.producer.submission import Handle, Submission
from async_processor.producer.taken import Taken
from async_processor.producer.unconfirmed import Unconfirmed
from async_processor.redis_io.producer_store import Draft
from async_processor.wire.result import Result

DEFAULT_URL: Final = "redis://localhost:6379/0"
DEFAULT_QUEUE: Final = "request-sortedset"
DEFAULT_RESULT_QUEUE: Final = "result-list"
_LONGEST_RECEIPT_S: Final = 3600.0
_NO_TLS: Final = TlsSettings()

_Prepared = tuple[Handle, Draft]


class Producer:
    """One broker and one request queue.

    `url` is the broker's, by default that of REDIS_URL. `result_queue` is where results without a
    mailbox go; empty, the processor's configuration decides. Every call is repeated for
    `retry_for` seconds while the broker is away, then it raises BrokerUnavailable; `on_outage`
    hears of every failure before. `reader_lease` (seconds) is how long a silent reader of results
    counts as alive. `confirm` says how many replicas of the broker must have a request before it
    counts as submitted; the call is repeated until they do, and queues it once. With
    `store_payload` payloads are kept apart from their messages, which then stay small.

    Use it as `async with Producer() as producer`.
    """

    def __init__(
        self,
        url: str = "",
        *,
        queue: str = DEFAULT_QUEUE,
        result_queue: str = "",
        tls: TlsSettings = _NO_TLS,
        store_payload: bool = False,
        retry_for: float = 60.0,
        on_outage: OnOutage | None = None,
        reader_lease: float = 30.0,
        confirm: Confirm = NOT_CONFIRMED,
    ) -> None:
        broker_url = url or os.environ.get("REDIS_URL") or DEFAULT_URL
        self._broker = Connection(broker_url, tls, retry_for, on_outage, confirm)
        self._route = Route(
            queue_name=queue, result_queue=result_queue, store_payload=store_payload
        )
        self._receipts = Receipts(self._drop_receipts)
        self._receipt_lifetime = min(2 * retry_for + 60, _LONGEST_RECEIPT_S)
        self._reader_lease = reader_lease
        self._readers: set[ResultReader] = set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Connect and take over the broker's clock, by which deadlines are judged.

        Raises:
            ConfigurationError: the URL or the TLS files cannot be used.
            BrokerUnavailable: the broker was away for too long.
            BrokerRefused: it refuses us.
        """
        await self._broker.open()

    async def close(self) -> None:
        """Put back what was taken and not acknowledged, and disconnect."""
        try:
            for reader in tuple(self._readers):
                await reader.close()
            await self._receipts.close()
        finally:
            await self._broker.close()

    def now(self) -> float:
        """The broker's Unix time in seconds, by which deadlines are judged."""
        return self._broker.clock.now()

    def check(self, submission: Submission) -> None:
        """Do all that `submit` does before it writes.

        Raises:
            InvalidSubmission: it would be refused; DeadlinePassed when that is the reason.
        """
        self._prepare(submission, mailbox=False)

    async def submit(self, submission: Submission, *, mailbox: bool = True) -> Handle:
        """Put one request into the queue; by default its result comes on a mailbox of its own.

        When an answer of the broker is lost the call is repeated, and the request is queued once.

        Raises:
            InvalidSubmission: nothing was written; DeadlinePassed when that is the reason.
            BrokerUnavailable: the broker was away for too long; the request may be queued.
                Unconfirmed when it is queued, and replicas have not confirmed it.
        """
        await self.start()
        handle, draft = self._prepare(submission, mailbox=mailbox)
        await self._enqueue([(handle, draft)])
        return handle

    async def submit_many(
        self, submissions: Iterable[Submission], *, mailbox: bool = False
    ) -> list[Handle]:
        """Put many requests into the queue: all of them, or none where one is invalid.

        Raises what `submit` raises; after BrokerUnavailable some may be queued.
        """
        await self.start()
        prepared = [self._prepare(one, mailbox=mailbox) for one in submissions]
        return [handle async for handle in self._enqueue_each(prepared)]

    async def submit_each(
        self,
        submissions: Iterable[Submission] | AsyncIterable[Submission],
        *,
        mailbox: bool = False,
    ) -> AsyncIterator[Handle]:
        """Put a stream of requests of any length into the queue, and say which are queued.

        It raises what `submit` raises when it comes to an invalid one; those before are queued.
        """
        await self.start()
        async for handle in self._enqueue_each(self._prepared(submissions, mailbox)):
            yield handle

    async def result(self, handle: Handle, timeout: float | None = None) -> Result:
        """Wait for the result of a request with a mailbox, up to `timeout` seconds.

        The mailbox is gone afterwards; with `take` it stays until the result is acknowledged.

        Raises:
            TimeoutError: there is none yet.
            NoMailbox: its result comes on the shared queue.
            BrokerUnavailable: the broker was away for too long.
        """
        taken = await self.take(handle, timeout)
        result = taken.result
        await taken.ack()
        return result

    async def take(self, handle: Handle, timeout: float | None = None) -> Taken:
        """Like `result`, but it can be read again, by anyone with the handle, until `ack`."""
        if not handle.has_mailbox:
            raise NoMailbox
        mailbox = handle.result_queue
        async with asyncio.timeout(timeout):
            await self.start()
            while True:
                await self._broker.watch.wait(mailbox)
                body = await self._broker(lambda: self._broker.store.peek(mailbox))
                if body is not None:
                    return Taken(body, partial(self._discard, mailbox))

    async def take_each(self, handles: Iterable[Handle]) -> AsyncIterator[Taken]:
        """The results of many requests with mailboxes, as they come."""
        tasks = [asyncio.create_task(self.take(handle)) for handle in handles]
        try:
            for task in asyncio.as_completed(tasks):
                yield await task
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def results(self, queue: str = "", *, follow: bool = True) -> ResultReader:
        """The results on the shared result queue; see `ResultReader`.

        Without `follow` it ends when the queue is empty.
        """
        reader = ResultReader(
            self._broker,
            queue or self._route.result_queue or DEFAULT_RESULT_QUEUE,
            lease=self._reader_lease,
            follow=follow,
            closed=self._readers.discard,
        )
        self._readers.add(reader)
        return reader

    async def cancel(self, *requests: str | Handle) -> list[bool]:
        """Cancel requests by id or handle; says of each whether there was something to cancel.

        An id means the request that was submitted last under it, a handle the very one. Nothing
        can be cancelled after its result, after its deadline, or without a token. A cancelled
        request still ends in a result, `CANCELLED`, unless it was just about to end otherwise.
        """
        await self.start()
        return await asyncio.gather(*(self._cancel(request) for request in requests))

    async def _cancel(self, request: str | Handle) -> bool:
        id_, token = (
            (request, "") if isinstance(request, str) else (request.id, request.request_token)
        )
        return await self._broker(lambda: self._broker.store.cancel(id_, token))

    def _prepare(self, submission: Submission, *, mailbox: bool) -> _Prepared:
        return message.draft(submission, self._route, self._broker.clock.now(), mailbox=mailbox)

    def _prepared(
        self, submissions: Iterable[Submission] | AsyncIterable[Submission], mailbox: bool
    ) -> Iterable[_Prepared] | AsyncIterable[_Prepared]:
        if isinstance(submissions, AsyncIterable):
            return (self._prepare(one, mailbox=mailbox) async for one in submissions)
        return (self._prepare(one, mailbox=mailbox) for one in submissions)

    async def _enqueue_each(
        self, prepared: Iterable[_Prepared] | AsyncIterable[_Prepared]
    ) -> AsyncIterator[Handle]:
        async for chunk in chunked(prepared, lambda one: one[1].size):
            await self._enqueue(chunk)
            for handle, _ in chunk:
                yield handle

    async def _enqueue(self, prepared: Sequence[_Prepared]) -> None:
        """The receipt makes the call safe to repeat: a chunk is enqueued once, whatever is lost.

        So one that replicas have not confirmed is sent again, too: after a failover in between it
        is enqueued if, and only if, the new master lacks it.
        """
        receipt = secrets.token_hex(16)
        drafts = [draft for _, draft in prepared]

        async def attempt() -> None:
            if not await self._broker.store.enqueue(
                self._route.queue_name,
                receipt,
                drafts,
                self._receipt_lifetime,
                self._broker.confirm,
            ):
                raise Unconfirmed([handle for handle, _ in prepared])

        await self._broker(attempt)
        self._receipts.spend(receipt)

    async def _drop_receipts(self, receipts: Sequence[str]) -> None:
        await self._broker.store.drop_receipts(self._route.queue_name, receipts)

    async def _discard(self, mailbox: str) -> None:
        await self._broker(lambda: self._broker.store.discard(mailbox))
