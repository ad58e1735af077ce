"""What a transport can be told: the broker, the names of its queues, leases."""

from __future__ import annotations

from typing import Literal

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
from async_processor.redis_io.url import RedisUrl


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


class MemorySettings(LeasedQueues):
    """Queues inside the process: nothing to install, and nothing survives it."""

    type: Literal["memory"] = "memory"
    """Queues inside the process."""
