"""The subscriptions of this process: looked at once, when they are first needed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Final

from async_processor.clock import Clock
from async_processor.errors import BrokerUnavailable
from async_processor.google_io.client import PubSubClient
from async_processor.telemetry.logs import get_logger
from async_processor.transport.google_pubsub.checks import look_at
from async_processor.transport.google_pubsub.results import Results
from async_processor.transport.google_pubsub.subscription import Subscription
from async_processor.transport.settings import PubSubSettings
from async_processor.wire import pubsub_names

LONGEST_PAUSE: Final = 2.0
"""Seconds between two tries while the service is away."""

LOOK_AGAIN: Final = 60.0
"""Seconds after which a subscription that might not be seen is looked at again."""

_log = get_logger(__name__)


class Subscriptions:
    """By the names of the configuration; `topics` are their topics, "" where it names none.

    `results` are told which topics requests come from.
    """

    def __init__(
        self,
        client: PubSubClient,
        settings: PubSubSettings,
        topics: Mapping[str, str],
        results: Results,
        clock: Clock,
    ) -> None:
        self._client = client
        self._settings = settings
        self._topics = topics
        self._results = results
        self._clock = clock
        self._known: dict[str, Subscription] = {}
        self._looked_at: dict[str, float] = {}

    def full_names(self) -> Iterator[str]:
        """Of those known from the start."""
        for name in self._topics:
            yield pubsub_names.subscription(name, self._settings.project_id)

    async def find_all(self) -> None:
        """Wait until all that are known from the start were looked at; raises BrokerRefused."""
        for name in self._topics:
            while not await self._found(name):
                await self._clock.sleep(random.uniform(0.1, LONGEST_PAUSE))

    async def _found(self, name: str) -> bool:
        try:
            await self.find(name)
        except BrokerUnavailable as error:
            _log.warning("broker_unavailable", error=str(error))
            return False
        return True

    async def find(self, name: str) -> Subscription:
        """The subscription of a queue, also of one that a new configuration brought.

        Raises BrokerUnavailable and BrokerRefused.
        """
        if name in self._known:
            return self._known[name]
        project = self._settings.project_id
        topic = self._topics.get(name, "")
        full_name = pubsub_names.subscription(name, project)
        full_topic = topic and pubsub_names.topic(topic, project)
        made = Subscription(self._client, name, full_name, full_topic)
        await self._look_at(made)
        self._known[name] = made
        self._note_topics()
        return made

    async def _look_at(self, subscription: Subscription) -> None:
        self._looked_at[subscription.name] = self._clock.monotonic()
        await look_at(self._client, subscription, self._settings)

    def _note_topics(self) -> None:
        self._results.requests = {each.topic for each in self._known.values()} - {""}

    async def look_again(self, subscription: Subscription) -> None:
        """Learn now and then what could not be seen at first.

        Raises BrokerUnavailable and BrokerRefused.
        """
        looked_at = self._looked_at[subscription.name]
        if subscription.facts or self._clock.monotonic() - looked_at < LOOK_AGAIN:
            return
        await self._look_at(subscription)
        self._note_topics()

    def refusal(self) -> str:
        """Why every subscription refused its last pull; "" as long as one of them did not."""
        refusals = [each.refusal for each in self._known.values()]
        return refusals[0] if refusals and all(refusals) else ""
