"""What a transport can be told: the broker, the names of its queues, leases."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar, Literal

from async_processor.fields import (
    Confirm,
    Count,
    Interval,
    IntervalOrOff,
    Name,
    PositiveDuration,
    Section,
    TlsSettings,
    Whole,
)
from async_processor.fields.cloud import CloudProject, OptionalTopicName, TopicName
from async_processor.redis_io.url import RedisUrl
from async_processor.wire import pubsub_names
from async_processor.wire.names import Reserved, reserved


class LeasedQueues(Section):
    """What every transport with leases has."""

    result_queue_name: Name = "result-list"
    """Where results go that name no queue of their own."""
    retry_queue_name: Name = "retry-sortedset"
    """Where failed requests wait for their next attempt."""
    dead_letter_queue_name: Name = "dead-letter-list"
    """Where messages go that nobody could process."""
    dead_letter_limit: Whole = 100_000
    """How many dead letters are kept; over it the oldest are dropped. 0: all are kept."""
    lease_ttl: PositiveDuration = 60.0
    """Seconds until a claim that nobody extends is taken back; extended every third of it."""
    reclaim_interval: Interval = 5.0
    """Seconds between two looks for expired leases."""
    max_deliveries: Count = 5
    """Claims without an outcome after which a request counts as poison."""
    backlog_poll_interval: IntervalOrOff = 15.0
    """Seconds between two readings of the backlog; 0 turns them off."""

    def reserved(self, queue_names: Collection[str]) -> Reserved:
        """Where no message may send its result."""
        machinery = {self.retry_queue_name, self.dead_letter_queue_name}
        return reserved({*queue_names, *machinery})


class RedisSettings(LeasedQueues):
    """A sorted set per queue, on Redis or Valkey."""

    type: Literal["redis-sortedset"] = "redis-sortedset"
    """A sorted set per queue, on Redis or Valkey."""
    url: RedisUrl = "redis://localhost:6379/0"
    """redis://, rediss:// (TLS), redis+sentinel://, rediss+sentinel:// or unix://; with user and
    password where the broker asks for them."""
    tls: TlsSettings = TlsSettings()
    """For rediss:// and rediss+sentinel://."""
    confirm: Confirm = Confirm()
    """How many Redis replicas must have an outcome before it counts as safe."""


class PubSubSettings(Section):
    """Google Pub/Sub: a subscription per queue, results on topics."""

    reclaim_interval: ClassVar[float] = 5.0
    """Pub/Sub takes leases back by itself."""
    dead_letter_limit: ClassVar[int] = 0
    """Topics forget by themselves."""

    type: Literal["gcp-pubsub"] = "gcp-pubsub"
    """Google Pub/Sub: a subscription per queue, results on topics."""
    project_id: CloudProject
    """The Google Cloud project of every name that is not a full one."""
    result_topic_id: TopicName
    """The topic of results that name none of their own."""
    dead_letter_topic_id: OptionalTopicName = ""
    """The topic of messages that nobody could process; default: that of the subscription's
    dead-letter policy."""
    lease_ttl: PositiveDuration = 60.0
    """Seconds until a message that nobody extends is delivered again, 10 to 600; extended every
    third of it."""
    max_deliveries: Count = 5
    """Lost leases after which a request counts as poison; needs a dead-letter policy on the
    subscription."""
    backlog_poll_interval: IntervalOrOff = 15.0
    """Seconds between two readings of the backlog; 0 turns them off."""

    @property
    def result_queue_name(self) -> str:
        """What is a queue elsewhere is a topic here."""
        return str(self.result_topic_id)

    def reserved(self, queue_names: Collection[str]) -> Reserved:
        """Where no message may send its result."""
        del queue_names  # subscriptions, to which nothing is published
        names = {self.dead_letter_topic_id} - {""}
        full = {pubsub_names.topic(name, self.project_id) for name in names}
        return Reserved(names=frozenset(names | full), beginnings=())


class MemorySettings(LeasedQueues):
    """Queues inside the process: nothing to install, and nothing survives it."""

    type: Literal["memory"] = "memory"
    """Queues inside the process."""
