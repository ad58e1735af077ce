"""What a transport can be told: the broker, the names of its queues, leases."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import field_validator, model_validator

from async_processor.fields import (
    BrokerUrl,
    Confirm,
    Count,
    Duration,
    NonEmpty,
    PositiveDuration,
    Section,
    TlsSettings,
)


class LeasedQueues(Section):
    """What every transport with leases has."""

    result_queue_name: NonEmpty = "result-list"
    """Where results go that name no queue of their own."""
    retry_queue_name: NonEmpty = "retry-sortedset"
    """Where failed requests wait for their next attempt."""
    dead_letter_queue_name: NonEmpty = "dead-letter-list"
    """Where messages go that nobody could process."""
    lease_ttl: PositiveDuration = 60.0
    """Seconds until a claim that nobody extends is taken back; extended every third of it."""
    reclaim_interval: PositiveDuration = 5.0
    """Seconds between two looks for expired leases."""
    max_deliveries: Count = 5
    """Claims without an outcome after which a request counts as poison."""
    backlog_poll_interval: Duration = 15.0
    """Seconds between two readings of the backlog; 0 turns them off."""

    @model_validator(mode="after")
    def _three_queues(self) -> Self:
        names = (self.result_queue_name, self.retry_queue_name, self.dead_letter_queue_name)
        if len(set(names)) < len(names):
            raise ValueError("result, retry and dead-letter queue must have different names")
        return self


class RedisSettings(LeasedQueues):
    """A sorted set per queue, on Redis or Valkey."""

    type: Literal["redis-sortedset"] = "redis-sortedset"
    """A sorted set per queue, on Redis or Valkey."""
    url: BrokerUrl = "redis://localhost:6379/0"
    """redis://, rediss:// (TLS), redis+sentinel://, rediss+sentinel:// or unix://; with user and
    password where the broker asks for them."""
    tls: TlsSettings = TlsSettings()
    """For rediss:// and rediss+sentinel://."""
    confirm: Confirm = Confirm()
    """How many Redis replicas must have an outcome before it counts as safe."""

    @field_validator("url")
    @classmethod
    def _known_scheme(cls, url: str) -> str:
        if not url.startswith(_SCHEMES):
            raise ValueError("must begin with " + ", ".join(_SCHEMES))
        return url


class MemorySettings(LeasedQueues):
    """Queues inside the process: nothing to install, and nothing survives it."""

    type: Literal["memory"] = "memory"
    """Queues inside the process."""


_SCHEMES = ("redis://", "rediss://", "redis+sentinel://", "rediss+sentinel://", "unix://")
