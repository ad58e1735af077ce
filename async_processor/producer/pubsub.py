"""The producer for Google Pub/Sub: the same calls as `Producer`, on topics and subscriptions.

async with PubSubProducer("my-project", topic="requests", result_topic="results") as producer:
    handle = await producer.submit(Submission(payload={"prompt": "hi"}, deadline="1h"))
    result = await producer.result(handle)
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from contextlib import suppress
from typing import Final, Self

from async_processor.clock import SystemClock
from async_processor.errors import AsyncProcessorError
from async_processor.google_io.client import PubSubClient
from async_processor.google_io.errors import Exists
from async_processor.google_io.publisher import Publisher
from async_processor.google_io.values import Message, NewSubscription
from async_processor.producer import message
from async_processor.producer.chunks import chunked
from async_processor.producer.errors import NoMailbox, NotSupported
from async_processor.producer.message import Route
from async_processor.producer.patience import OnOutage, Patience
from async_processor.producer.pubsub_inbox import LEASE, Inbox, PubSubResults, Subscribed
from async_processor.producer.submission import Handle, Submission
from async_processor.producer.taken import Taken
from async_processor.wire import pubsub_names
from async_processor.wire.result import Result

RESULT_ROUTE: Final = "result_route"
"""The attribute that the processor copies from a request to its result."""

_LIFETIME: Final = 24 * 3600.0

_Prepared = tuple[Handle, Message]


class PubSubProducer:
    """One project and one request topic; names are ids or full names.

    Results come on `result_topic`; without one the processor's configuration decides. Those of
    requests with a mailbox are read from `result_subscription`, which other processes may go on
    reading; without one the first such request makes a subscription of this producer's own, which
    ends with it. `route` is the value of the attribute `result_route` on requests and results, for
    a subscription to filter by; one of its own is made where none is given.

    A request is submitted once its publishing is confirmed; while the service is away a call is
    repeated for `retry_for` seconds, and a request whose confirmation was lost is queued twice.
    """

    def __init__(
        self,
        project_id: str,
        *,
        topic: str,
        result_topic: str = "",
        result_subscription: str = "",
        route: str = "",
        retry_for: float = 60.0,
        on_outage: OnOutage | None = None,
        client: PubSubClient | None = None,
    ) -> None:
        self._clock = SystemClock()
        self._client = client or PubSubClient(self._clock)
        self._publisher = Publisher(self._client)
        self._project_id = project_id
        self._topic = pubsub_names.topic(topic, project_id)
        self._result_topic = result_topic and pubsub_names.topic(result_topic, project_id)
        self._result_subscription = result_subscription
        self._own = not (result_subscription or route)
        self._route = route or (f"producer-{secrets.token_hex(8)}" if self._own else "")
        self._patience = Patience(retry_for, on_outage)
        self._inbox: Inbox | None = None
        self._opening = asyncio.Lock()
        self._readers: set[PubSubResults] = set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Connect; raises ConfigurationError where there are no credentials."""
        await self._client.open()

    async def close(self) -> None:
        """Give back what was taken and not acknowledged, and disconnect."""
        try:
            for reader in tuple(self._readers):
                await reader.close()
            if self._inbox is not None:
                await self._inbox.close()
                if self._own:
                    with suppress(AsyncProcessorError):  # it ends by itself within a day or so
                        await self._client.delete_subscription(self._own_subscription)
        finally:
            await self._client.close()

    def now(self) -> float:
        """This machine's Unix time in seconds: Pub/Sub tells none."""
        return self._clock.now()

    def check(self, submission: Submission) -> None:
        """Like `Producer.check`."""
        self._prepare(submission, mailbox=False)

    async def submit(self, submission: Submission, *, mailbox: bool = True) -> Handle:
        """Like `Producer.submit`; also raises BrokerRefused where the topic refuses."""
        (handle,) = await self.submit_many([submission], mailbox=mailbox)
        return handle

    async def submit_many(
        self, submissions: Iterable[Submission], *, mailbox: bool = False
    ) -> list[Handle]:
        """Like `Producer.submit_many`."""
        prepared = [self._prepare(one, mailbox=mailbox) for one in submissions]
        return [handle async for handle in self._publish_each(prepared, mailbox=mailbox)]

    async def submit_each(
        self,
        submissions: Iterable[Submission] | AsyncIterable[Submission],
        *,
        mailbox: bool = False,
    ) -> AsyncIterator[Handle]:
        """Like `Producer.submit_each`."""
        if isinstance(submissions, AsyncIterable):
            prepared: Iterable[_Prepared] | AsyncIterable[_Prepared] = (
                self._prepare(one, mailbox=mailbox) async for one in submissions
            )
        else:
            prepared = (self._prepare(one, mailbox=mailbox) for one in submissions)
        async for handle in self._publish_each(prepared, mailbox=mailbox):
            yield handle

    async def result(self, handle: Handle, timeout: float | None = None) -> Result:
        """Like `Producer.result`."""
        taken = await self.take(handle, timeout)
        result = taken.result
        await taken.ack()
        return result

    async def take(self, handle: Handle, timeout: float | None = None) -> Taken:
        """Like `Producer.take`."""
        async with asyncio.timeout(timeout):
            return await (await self._opened()).take(handle.id)

    def results(self, queue: str = "", *, follow: bool = True) -> PubSubResults:
        """The results on a subscription, by default `result_subscription`; see `PubSubResults`.

        Raises NoMailbox where none is named.
        """
        name = queue or self._result_subscription
        if not name:
            raise NoMailbox("results are read from a subscription: name one")
        reader = PubSubResults(self._subscribed(name), follow=follow, closed=self._readers.discard)
        self._readers.add(reader)
        return reader

    async def cancel(self, *requests: str | Handle) -> list[bool]:
        """Raises NotSupported: what was published to Pub/Sub cannot be taken back."""
        del requests
        raise NotSupported(
            "Pub/Sub cannot cancel a request: give requests deadlines, or ignore their results"
        )

    @property
    def _own_subscription(self) -> str:
        return pubsub_names.subscription(self._route, self._project_id)

    def _subscribed(self, name: str) -> Subscribed:
        full_name = pubsub_names.subscription(name, self._project_id)
        return Subscribed(self._client, full_name, self._patience)

    async def _opened(self) -> Inbox:
        """Where the results of this producer's requests come."""
        async with self._opening:
            if self._inbox is None:
                if self._own:
                    await self._make_own()
                name = self._result_subscription or self._own_subscription
                self._inbox = Inbox(self._subscribed(name), shared=not self._own)
        return self._inbox

    async def _make_own(self) -> None:
        if not self._result_topic:
            raise NoMailbox("a result is waited for on a subscription: name it, or result_topic")
        wanted = NewSubscription(
            name=self._own_subscription,
            topic=self._result_topic,
            ack_deadline=LEASE,
            filter=f'attributes.{RESULT_ROUTE} = "{self._route}"',
            lifetime=_LIFETIME,
        )
        with suppress(Exists):  # by a try whose answer was lost
            await self._patience(lambda: self._client.create_subscription(wanted))

    def _prepare(self, submission: Submission, *, mailbox: bool) -> _Prepared:
        route = Route(queue_name=self._topic, result_queue=self._result_topic)
        handle, body = message.bare(submission, route, self._clock.now())
        attributes = {RESULT_ROUTE: self._route} if self._route and mailbox else {}
        return handle, Message(data=body, attributes=attributes)

    async def _publish_each(
        self, prepared: Iterable[_Prepared] | AsyncIterable[_Prepared], *, mailbox: bool
    ) -> AsyncIterator[Handle]:
        await self.start()
        inbox = await self._opened() if mailbox else None  # before there can be a result
        async for chunk in chunked(prepared, lambda one: one[1].size):
            if inbox is not None:
                inbox.expect(handle.id for handle, _ in chunk)
            await asyncio.gather(*(self._publish(each) for _, each in chunk))
            for handle, _ in chunk:
                yield handle

    async def _publish(self, request: Message) -> None:
        await self._patience(lambda: self._publisher.publish(self._topic, request))
