"""Publishes in batches, and returns when Pub/Sub keeps the message."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from async_processor.errors import BrokerRefused, BrokerUnavailable
from async_processor.google_io.batches import Batches
from async_processor.google_io.client import PubSubClient
from async_processor.google_io.values import Message

LARGEST_MESSAGE: Final = 10_000_000
"""Bytes of data and attributes that Pub/Sub takes in one message."""

_BATCH: Final = 200
_BATCH_BYTES: Final = 5_000_000

_Confirmation = BrokerRefused | BrokerUnavailable | None


class Publisher:
    """All topics of one client."""

    def __init__(self, client: PubSubClient) -> None:
        self._client = client
        self._topics: dict[str, Batches[Message, _Confirmation]] = {}

    async def publish(self, topic: str, message: Message) -> None:
        """Return when the message is kept; `topic` is a full name.

        Raises:
            BrokerUnavailable: it may or may not be kept.
            BrokerRefused: it is not, and will not be.
        """
        batches = self._topics.get(topic)
        if batches is None:
            batches = self._topics[topic] = Batches(
                partial(self._send, topic),
                items=_BATCH,
                max_bytes=_BATCH_BYTES,
                size=lambda message: message.size,
            )
        failure = await batches(message)
        if isinstance(failure, BrokerRefused):
            self._topics.pop(topic, None)  # messages may name any topic: keep those that exist
        if failure is not None:
            raise failure

    async def _send(self, topic: str, messages: Sequence[Message]) -> Sequence[_Confirmation]:
        """One message that is refused takes its whole batch down: then each goes alone."""
        try:
            await self._client.publish(topic, messages)
        except BrokerRefused as refusal:
            if len(messages) == 1:
                return [refusal]
            return [await self._send_alone(topic, message) for message in messages]
        return [None] * len(messages)

    async def _send_alone(self, topic: str, message: Message) -> _Confirmation:
        """Its failure is its own: those that went before are kept, and not to be repeated."""
        try:
            await self._client.publish(topic, [message])
        except (BrokerRefused, BrokerUnavailable) as failure:
            return failure
        return None
