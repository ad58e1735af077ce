"""Calls to Pub/Sub, one method each, in our own words. Every method may raise BrokerUnavailable.

`PUBSUB_EMULATOR_HOST` names an emulator instead of Google's service. Nothing is retried here:
whoever calls knows what is safe to repeat.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from google.api_core.exceptions import DeadlineExceeded, GoogleAPICallError
from google.auth import default as default_credentials
from google.pubsub_v1 import PublisherAsyncClient, SubscriberAsyncClient, types
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport
from grpc import aio

from async_processor.clock import Clock
from async_processor.google_io.errors import border
from async_processor.google_io.values import (
    Message,
    NewSubscription,
    Received,
    SubscriptionFacts,
    Verdict,
)

PULL_TIMEOUT: Final = 60.0
"""Seconds; the service itself ends an empty pull before, for one that is given up here could lease
messages that nobody hears of."""
CALL_TIMEOUT: Final = 20.0
LOOK_TIMEOUT: Final = 3.0
EMULATOR_VARIABLE: Final = "PUBSUB_EMULATOR_HOST"

_UNLIMITED: Final = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
)
_PARTIAL_FAILURE: Final = "EXACTLY_ONCE_ACKID_FAILURE"
_TRANSIENT: Final = "TRANSIENT_FAILURE"
_SCOPES: Final = ("https://www.googleapis.com/auth/pubsub",)


class PubSubClient:
    """One connection, for one event loop."""

    def __init__(self, clock: Clock, *, emulator: str = "") -> None:
        self._clock = clock
        self._emulator = emulator or os.environ.get(EMULATOR_VARIABLE, "")
        self._publisher: PublisherAsyncClient
        self._subscriber: SubscriberAsyncClient
        self._channels: list[aio.Channel] = []
        self.heard_at = float("-inf")
        """When the service answered last, in monotonic seconds."""

    async def open(self) -> None:
        """Prepare the connection; raises ConfigurationError where there are no credentials."""
        if self._channels:
            return
        if self._emulator:
            channel = aio.insecure_channel(self._emulator, options=_UNLIMITED)
            self._channels = [channel]
            publishing: dict[str, Any] = {"channel": channel}
            subscribing = publishing
        else:
            with border("Google credentials"):
                # It may ask the machine's metadata server, and blocks meanwhile.
                credentials, _ = await asyncio.to_thread(default_credentials, scopes=_SCOPES)
            publishing = subscribing = {"credentials": credentials}
        publisher = PublisherGrpcAsyncIOTransport(**publishing)
        subscriber = SubscriberGrpcAsyncIOTransport(**subscribing)
        self._channels = [publisher.grpc_channel, subscriber.grpc_channel]
        self._publisher = PublisherAsyncClient(transport=publisher)
        self._subscriber = SubscriberAsyncClient(transport=subscriber)

    @property
    def emulated(self) -> bool:
        """Whether an emulator stands in for the service."""
        return bool(self._emulator)

    async def close(self) -> None:
        """Disconnect; calls under way are given up."""
        channels, self._channels = self._channels, []
        for channel in channels:
            await channel.close()

    async def pull(
        self, subscription: str, limit: int, patience: float = PULL_TIMEOUT
    ) -> list[Received]:
        """Lease up to `limit` messages; waits for the first one, `patience` seconds at most.

        Cancelling it may leave messages leased to nobody until their ack deadline.
        """
        request = types.PullRequest(subscription=subscription, max_messages=limit)
        with border(f"pull from {subscription}"):
            try:
                answer = await self._subscriber.pull(request, retry=None, timeout=patience)
            except DeadlineExceeded:
                return []
        self._heard()
        return [_received(one) for one in types.PullResponse.pb(answer).received_messages]

    async def acknowledge(self, subscription: str, ack_ids: Sequence[str]) -> list[Verdict]:
        """Remove messages for good; a verdict for each."""
        request = types.AcknowledgeRequest(subscription=subscription, ack_ids=ack_ids)
        call = self._subscriber.acknowledge(request, retry=None, timeout=CALL_TIMEOUT)
        return await self._for_each(f"acknowledge on {subscription}", call, ack_ids)

    async def modify(
        self, subscription: str, ack_ids: Sequence[str], seconds: int
    ) -> list[Verdict]:
        """Let leases end in so many seconds, 0 to 600; a verdict for each."""
        request = types.ModifyAckDeadlineRequest(
            subscription=subscription, ack_ids=ack_ids, ack_deadline_seconds=seconds
        )
        call = self._subscriber.modify_ack_deadline(request, retry=None, timeout=CALL_TIMEOUT)
        return await self._for_each(f"change leases of {subscription}", call, ack_ids)

    async def _for_each(
        self, what: str, call: Awaitable[None], ack_ids: Sequence[str]
    ) -> list[Verdict]:
        with border(what):
            try:
                await call
            except GoogleAPICallError as error:
                if error.reason != _PARTIAL_FAILURE:
                    raise
                failed: Mapping[str, str] = error.metadata or {}
                return [_verdict(failed.get(ack_id, "")) for ack_id in ack_ids]
        self._heard()
        return [Verdict.DONE] * len(ack_ids)

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        """Publish messages; when it returns, Pub/Sub keeps them."""
        request = types.PublishRequest(
            topic=topic,
            messages=[
                types.PubsubMessage(data=one.data, attributes=dict(one.attributes))
                for one in messages
            ],
        )
        with border(f"publish to {topic}"):
            await self._publisher.publish(request, retry=None, timeout=CALL_TIMEOUT)
        self._heard()

    async def subscription(self, name: str, timeout: float = CALL_TIMEOUT) -> SubscriptionFacts:
        """How a subscription is set up. Also raises `Missing` and `Denied`."""
        with border(f"look at {name}"):
            found = await self._subscriber.get_subscription(
                subscription=name, retry=None, timeout=timeout
            )
        self._heard()
        policy = found.dead_letter_policy
        return SubscriptionFacts(
            topic=found.topic,
            ack_deadline=found.ack_deadline_seconds,
            exactly_once=found.enable_exactly_once_delivery,
            pushes=bool(found.push_config.push_endpoint),
            dead_letter_topic=policy.dead_letter_topic,
            max_delivery_attempts=policy.max_delivery_attempts if policy.dead_letter_topic else 0,
        )

    def _heard(self) -> None:
        self.heard_at = self._clock.monotonic()

    async def create_topic(self, name: str) -> None:
        """Raises `Exists` where there is one."""
        with border(f"create {name}"):
            await self._publisher.create_topic(name=name, retry=None, timeout=CALL_TIMEOUT)

    async def create_subscription(self, wanted: NewSubscription) -> None:
        """Raises `Exists` where there is one, and `Missing` where its topic is not there."""
        made = types.Subscription(
            name=wanted.name,
            topic=wanted.topic,
            filter=wanted.filter,
            ack_deadline_seconds=wanted.ack_deadline,
            enable_exactly_once_delivery=wanted.exactly_once,
            expiration_policy=_expiration(wanted.lifetime),
        )
        if wanted.backoff is not None:
            shortest, longest = (timedelta(seconds=each) for each in wanted.backoff)
            made.retry_policy = types.RetryPolicy(minimum_backoff=shortest, maximum_backoff=longest)
        if wanted.dead_letter_topic:
            made.dead_letter_policy = types.DeadLetterPolicy(
                dead_letter_topic=wanted.dead_letter_topic,
                max_delivery_attempts=wanted.max_delivery_attempts,
            )
        with border(f"create {wanted.name}"):
            await self._subscriber.create_subscription(made, retry=None, timeout=CALL_TIMEOUT)

    async def delete_subscription(self, name: str) -> None:
        """Raises `Missing` where there is none."""
        with border(f"delete {name}"):
            await self._subscriber.delete_subscription(
                subscription=name, retry=None, timeout=CALL_TIMEOUT
            )


def _expiration(lifetime: float | None) -> types.ExpirationPolicy:
    if lifetime is None:
        return types.ExpirationPolicy()  # never
    return types.ExpirationPolicy(ttl=timedelta(seconds=lifetime))


def _received(one: Any) -> Received:
    message = one.message
    return Received(
        ack_id=one.ack_id,
        data=message.data,
        attributes=dict(message.attributes),
        message_id=message.message_id,
        published_at=message.publish_time.seconds + message.publish_time.nanos / 1e9,
        attempt=one.delivery_attempt,
    )


def _verdict(failure: str) -> Verdict:
    if not failure:
        return Verdict.DONE
    return Verdict.AGAIN if failure.startswith(_TRANSIENT) else Verdict.LOST
