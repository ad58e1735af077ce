"""Gates over a Redis."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from async_processor.admission.settings.section import GateSection, GatingMode
from async_processor.fields import (
    Count,
    Name,
    NonEmpty,
    OptionalName,
    Positive,
    PositiveDuration,
    host_and_port,
)
from async_processor.redis_io.url import RedisUrl


class QuotaMode(StrEnum):
    """What a quota counts."""

    RATE_LIMIT = "rate-limit"
    CONCURRENCY = "concurrency"


REDIS_PORT: Final = 6379


def _place(text: str) -> str:
    if text:
        host_and_port(text, REDIS_PORT)
    return text


class RedisGateSection(GateSection):
    """What gates over a Redis have in common."""

    address: Annotated[str, AfterValidator(_place)] = ""
    """host:port of the Redis, another way to give the url."""
    url: RedisUrl | None = None
    """The Redis; default: the transport's."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.address and self.url:
            raise ValueError("needs address or url, and not both")
        return self

    def redis_url(self, default: str) -> str:
        """Where the Redis is; `default` is the transport's URL, empty without one."""
        return self.url or (f"redis://{self.address}" if self.address else default)


class RedisGate(RedisGateSection):
    """The budget is what somebody writes into a key."""

    type: Literal["redis"] = "redis"
    """The budget is what somebody writes into a key."""
    budget_key: Name = "dispatch-gate-budget"
    """The key with the budget in [0, 1]; not set: open, not a number: closed."""


class RedisLeasedRateGate(RedisGateSection):
    """At most as many starts a second as a planner leases to all replicas together."""

    type: Literal["redis-leased-rate"] = "redis-leased-rate"
    """At most as many starts a second as a planner leases to all replicas together."""
    control_key: Name
    """The hash that the planner writes."""
    state_key: OptionalName = ""
    """The hash that keeps the bucket; default: the control_key and :state."""
    pool_id: str = ""
    """The pool that the lease must be for; default: the worker pool's id."""
    burst_seconds: Positive = 1.0
    """For how many seconds of the rate idleness is made up for."""

    @property
    def bucket_key(self) -> str:
        """Where the bucket is kept."""
        return self.state_key or f"{self.control_key}:state"


def _without_braces(prefix: Any) -> Any:
    """The braces of a key are ours: they put all tenants of a quota into one hash slot."""
    if isinstance(prefix, str) and set(prefix) & set("{}"):
        raise ValueError("must be a text without braces")
    return prefix


class RedisQuotaGate(RedisGateSection):
    """A limit for each tenant, which all replicas keep together."""

    type: Literal["redis-quota"] = "redis-quota"
    """A limit for each tenant, which all replicas keep together."""
    attribute: NonEmpty = "userid"
    """The metadata attribute that names the tenant."""
    mode: QuotaMode = QuotaMode.RATE_LIMIT
    """rate-limit counts starts in a window, concurrency requests that run."""
    limit: Count | None = None
    """Of a tenant that limits does not name; this or limits is required."""
    limits: dict[NonEmpty, Count] = Field(default_factory=dict)
    """By tenant; a name with * is each tenant that it fits, the longest such name first."""
    window: PositiveDuration = 60.0
    """Seconds: the window of a rate; the life of a slot that nobody renews."""
    prefix: Annotated[Name, Field(pattern=r"^[^{}]*$"), BeforeValidator(_without_braces)] = "quota:"
    """What the keys in Redis begin with; gates of the same prefix, mode and attribute count
    together."""
    gating_mode: GatingMode = GatingMode.BLOCKING
    """blocking refuses over the limit, classifying only marks as reserved or overflow."""
    missing_attribute: NonEmpty = "allow"
    """Requests without a tenant: allow, refuse, or the tenant that they count under."""

    @model_validator(mode="after")
    def _has_a_limit(self) -> Self:
        if self.limit is None and not self.limits:
            raise ValueError("needs limit or limits")
        return self

    @model_validator(mode="after")
    def _refuses_or_not(self) -> Self:
        if self.missing_attribute == "refuse" and self.gating_mode is GatingMode.CLASSIFYING:
            raise ValueError("missing_attribute: refuse needs gating_mode: blocking")
        return self
