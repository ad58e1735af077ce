"""Pub/Sub's rules in memory: topics, subscriptions, leases, exactly-once, dead-letter policies.

It lives in one event loop. `second` is how long a second of its leases lasts, so that a test need
not wait for real ones.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from google.pubsub_v1 import types

from async_processor.google_io.values import Received

_STALL: Final = 0.05
"""Seconds that a timer may be late on a loop that runs freely."""

_EQUALS: Final = re.compile(r'attributes\.(\w+)\s*=\s*"([^"]*)"')


@dataclass(kw_only=True, eq=False)
class Kept:
    """A message in one subscription; `attempt` counts its deliveries."""

    message: types.PubsubMessage
    attempt: int = 0


@dataclass(kw_only=True, eq=False)
class Lease:
    kept: Kept
    timer: asyncio.TimerHandle | None = None


@dataclass(kw_only=True, eq=False)
class Subscription:
    """What waits, and what is leased by ack id.

    `delivered` lists every delivery's ack id and message id; `acknowledged` the messages' ids.
    """

    settings: types.Subscription
    waiting: deque[Kept] = field(default_factory=deque)
    leases: dict[str, Lease] = field(default_factory=dict)
    filled: asyncio.Event = field(default_factory=asyncio.Event)
    delivered: list[tuple[str, str]] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)
    pulls: int = 0
    twice: int = 0
    """So many of the next messages are delivered twice at once."""

    @property
    def exactly_once(self) -> bool:
        return bool(self.settings.enable_exactly_once_delivery)

    @property
    def undelivered(self) -> int:
        """Messages that nobody has acknowledged."""
        return len(self.waiting) + len(self.leases)

    def add(self, kept: Kept) -> None:
        self.waiting.append(kept)
        self.filled.set()


class PubSubBroker:
    """One project's worth of Pub/Sub."""

    def __init__(self, *, second: float = 1.0) -> None:
        self.second = second
        self.topics: dict[str, list[types.PubsubMessage]] = {}
        """What was published to each topic, in order."""
        self.subscriptions: dict[str, Subscription] = {}
        self._ids = count(1)

    def create_topic(self, name: str) -> None:
        self.topics.setdefault(name, [])

    def create_subscription(self, settings: types.Subscription) -> Subscription:
        made = Subscription(settings=settings)
        self.subscriptions[settings.name] = made
        return made

    def publish(self, topic: str, message: types.PubsubMessage) -> str:
        """Keep a message in every subscription of the topic whose filter lets it through."""
        message.message_id = str(next(self._ids))
        types.PubsubMessage.pb(message).publish_time.FromNanoseconds(time.time_ns())
        self.topics[topic].append(message)
        for subscription in self.subscriptions.values():
            if subscription.settings.topic == topic and _passes(subscription, message):
                subscription.add(Kept(message=message))
        return str(message.message_id)

    def published(self, topic: str) -> list[Received]:
        """What was published to a topic, as a subscriber would get it."""
        return [
            Received(
                ack_id="",
                data=one.data,
                attributes=dict(one.attributes),
                message_id=one.message_id,
                published_at=one.publish_time.timestamp(),
                attempt=0,
            )
            for one in self.topics[topic]
        ]

    def pull(self, subscription: Subscription, limit: int) -> list[types.ReceivedMessage]:
        """Lease what waits."""
        received: list[types.ReceivedMessage] = []
        while subscription.waiting and len(received) < limit:
            kept = subscription.waiting.popleft()
            kept.attempt += 1
            if self._buried(subscription, kept):
                continue
            received.append(self._lease(subscription, kept))
            if subscription.twice:
                subscription.twice -= 1
                received.append(self._lease(subscription, kept))
        if not subscription.waiting:
            subscription.filled.clear()
        return received

    def _buried(self, subscription: Subscription, kept: Kept) -> bool:
        policy = subscription.settings.dead_letter_policy
        if not policy.dead_letter_topic or kept.attempt <= policy.max_delivery_attempts:
            return False
        self.publish(policy.dead_letter_topic, types.PubsubMessage(data=kept.message.data))
        return True

    def _lease(self, subscription: Subscription, kept: Kept) -> types.ReceivedMessage:
        ack_id = f"{subscription.settings.name}:{next(self._ids)}"
        subscription.leases[ack_id] = Lease(kept=kept)
        subscription.delivered.append((ack_id, kept.message.message_id))
        self.extend(subscription, ack_id, subscription.settings.ack_deadline_seconds or 10)
        counted = bool(subscription.settings.dead_letter_policy.dead_letter_topic)
        return types.ReceivedMessage(
            ack_id=ack_id, message=kept.message, delivery_attempt=kept.attempt if counted else 0
        )

    def extend(self, subscription: Subscription, ack_id: str, seconds: float) -> bool:
        """Let a lease end in so many seconds; False when there is none."""
        lease = subscription.leases.get(ack_id)
        if lease is None:
            return False
        if lease.timer is not None:
            lease.timer.cancel()
        if seconds == 0:
            self.end_lease(subscription, ack_id)
        else:
            self._end_later(subscription, ack_id, lease, seconds * self.second)
        return True

    def _end_later(
        self, subscription: Subscription, ack_id: str, lease: Lease, seconds: float
    ) -> None:
        """A loop that stood still, with the holder of the lease in it, is no lost lease."""
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds

        def end() -> None:
            late = loop.time() - due
            if late > _STALL:
                self._end_later(subscription, ack_id, lease, late)
            else:
                self.end_lease(subscription, ack_id)

        lease.timer = loop.call_later(seconds, end)

    def end_lease(self, subscription: Subscription, ack_id: str) -> None:
        """The message goes back."""
        lease = subscription.leases.pop(ack_id, None)
        if lease is None:
            return
        if lease.timer is not None:
            lease.timer.cancel()
        if lease.kept.message.message_id not in subscription.acknowledged:
            subscription.add(lease.kept)

    def acknowledge(self, subscription: Subscription, ack_id: str) -> bool:
        """Remove a message; False when the lease is gone."""
        lease = subscription.leases.pop(ack_id, None)
        if lease is None:
            return False
        if lease.timer is not None:
            lease.timer.cancel()
        subscription.acknowledged.append(lease.kept.message.message_id)
        return True

    def redeliver(self, subscription: Subscription) -> None:
        """Forget every lease, as the service may do; without exactly-once, acks still count."""
        for ack_id in tuple(subscription.leases):
            self.end_lease(subscription, ack_id)


def _passes(subscription: Subscription, message: types.PubsubMessage) -> bool:
    wanted = subscription.settings.filter
    if not wanted:
        return True
    match = _EQUALS.fullmatch(wanted)
    if match is None:
        raise NotImplementedError(f"filter {wanted!r}")
    return message.attributes.get(match[1]) == match[2]
