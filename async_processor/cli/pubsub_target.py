"""Where a client command works when its configuration says Pub/Sub."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

from async_processor.errors import ConfigurationError, Problem
from async_processor.wire import pubsub_names

if TYPE_CHECKING:
    from async_processor.producer.patience import OnOutage
    from async_processor.producer.pubsub import PubSubProducer


class PubSubTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A project and the subscriptions that the daemon pulls from.

    `topics` are their topics, "" where the subscription has to be asked. `result_topic` is where
    results go, `results_from` the subscription that they are read from.
    """

    project_id: str
    queues: tuple[str, ...]
    topics: dict[str, str]
    result_topic: str
    results_from: str
    overrides: dict[str, str] = {}
    daemon: str = ""
    bearer_token: str = ""

    @property
    def queue(self) -> str:
        """The one queue; raises ConfigurationError where there are several."""
        if len(self.queues) > 1:
            message = f"name one of {', '.join(self.queues)}"
            raise ConfigurationError([Problem(path="--queue", message=message)])
        return self.queues[0]

    @asynccontextmanager
    async def producer(
        self, *, retry_for: float, on_outage: OnOutage | None = None
    ) -> AsyncIterator[PubSubProducer]:
        """A producer for the one queue."""
        from async_processor.producer.pubsub import PubSubProducer

        async with PubSubProducer(
            self.project_id,
            topic=self.topics.get(self.queue) or await self._topic(),
            result_topic=self.result_topic,
            retry_for=retry_for,
            on_outage=on_outage,
        ) as producer:
            yield producer

    async def _topic(self) -> str:
        from async_processor.clock import SystemClock
        from async_processor.google_io.client import PubSubClient

        client = PubSubClient(SystemClock())
        await client.open()
        try:
            name = pubsub_names.subscription(self.queue, self.project_id)
            return (await client.subscription(name)).topic
        finally:
            await client.close()
