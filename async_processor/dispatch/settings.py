"""Queues, the pools that work on them, and the order between queues."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import Field, field_validator

from async_processor.admission.settings import ConstantGate, GateSettings
from async_processor.fields import (
    Count,
    HeaderPattern,
    HeaderValue,
    HttpUrl,
    MarkingHeader,
    Name,
    NonEmpty,
    OptionalName,
    Positive,
    PositiveDuration,
    Section,
    UrlPath,
)
from async_processor.fields.cloud import OptionalTopicName, SubscriptionName
from async_processor.transforms.settings import ModelNames

LaneName = Literal[
    "reserved-interactive",
    "reserved-async",
    "reserved-batch",
    "overflow-interactive",
    "overflow-async",
    "overflow-batch",
]
"""The lanes of tier-priority, the highest first."""


def _same_as_queue_name(validated: dict[str, Any]) -> str:
    return str(validated["queue_name"])


class QueueSettings(Section):
    """One request queue: where its requests go and what lets them through."""

    queue_name: Name = "request-sortedset"
    """The sorted set that producers write to."""
    id: Name = Field(default_factory=_same_as_queue_name)
    """The `queue_id` label of metrics; default: queue_name."""
    igw_base_url: HttpUrl
    """The inference gateway, http:// or https://."""
    request_path_url: UrlPath = "/v1/completions"
    """Where a request goes that names no endpoint."""
    inference_objective: HeaderValue = ""
    """Sent as x-llm-d-inference-objective and x-gateway-inference-objective; empty: not sent."""
    worker_pool_id: Name = "default"
    """Which of worker_pools works on this queue."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels of every request of this queue, e.g. {tier: batch}."""
    result_queue_name: OptionalName = ""
    """Results of this queue go here, whatever the message says; empty: the message decides."""
    result_ttl_seconds: Annotated[PositiveDuration, Field(ge=1)] | None = None
    """Seconds after which the result list expires, counted from its last result; default: never."""
    allowed_headers: tuple[HeaderPattern, ...] | None = None
    """Names of the message headers that are sent on; default: all that the rules allow."""
    allowed_result_queues: tuple[NonEmpty, ...] = ("*",)
    """Patterns of the result queues that a message may name."""
    model: ModelNames = Field(default_factory=dict)
    """The model to ask for instead of the payload's: a name, or old names to new ones, where `*`
    stands for any other and for none; default: the payload's."""
    gate: GateSettings = ConstantGate()
    """What lets requests of this queue through."""


class TopicSettings(QueueSettings):
    """One Pub/Sub subscription: where its requests go and what lets them through."""

    queue_name: SubscriptionName = Field(alias="subscriber_id")
    """The subscription that requests are pulled from, its id or its full name."""
    topic_id: OptionalTopicName = ""
    """The topic that it subscribes to, where retries are stored; default: the subscription is
    asked."""
    result_queue_name: OptionalTopicName = ""
    """The topic for results of this subscription, whatever the message says; empty: the message
    decides."""

    @field_validator("result_ttl_seconds")
    @classmethod
    def _no_lifetime(cls, seconds: float | None) -> float | None:
        if seconds is not None:
            raise ValueError("is the business of the result topic's subscriptions: leave it out")
        return seconds


MOST_WORKERS: Final = 100_000
"""Of one pool in one process, each with a connection and a request in memory."""


class PoolSettings(Section):
    """A number of workers that share a gate."""

    id: Name = "default"
    """Queues name it as worker_pool_id; the `pool_name` label of metrics."""
    workers: Annotated[Count, Field(le=MOST_WORKERS)] = 64
    """Calls that may run at once."""
    gate: GateSettings = ConstantGate()
    """Asked before each call; it may let requests wait in memory."""


class MergePolicySettings(Section):
    """What every merge policy has: the headers that tell the router whose a request is."""

    fairness_header: MarkingHeader = "x-llm-d-inference-fairness-id"
    """The header that carries the tenant; empty turns it off."""
    fairness_attribute: str = "userid"
    """The metadata attribute that names the tenant; empty turns it off."""
    objective_header: MarkingHeader = "x-llm-d-inference-objective"
    """The header that carries the inference objective; empty turns it off."""


class RandomRobinPolicy(MergePolicySettings):
    """Every queue with work has the same chance at a free slot."""

    type: Literal["random-robin"] = "random-robin"
    """Every queue with work has the same chance at a free slot."""


class TierPriorityPolicy(MergePolicySettings):
    """Six strict lanes: what a quota covers before what it does not, each by tier."""

    type: Literal["tier-priority"] = "tier-priority"
    """Six strict lanes: what a quota covers before what it does not, each by tier."""
    tier_label: NonEmpty = "tier"
    """The queue label that says interactive, async or batch; anything else is batch."""
    priority_header: MarkingHeader = ""
    """The header that carries the lane's index, 0 (the highest) to 5; empty turns it off."""
    lane_objectives: dict[LaneName, HeaderValue] = Field(default_factory=dict)
    """The inference objective of a lane instead of its queue's."""


class CostUnit(StrEnum):
    """What a tenant's share is measured in."""

    REQUESTS = "requests"
    TOKENS = "tokens"


class WeightedFairPolicy(MergePolicySettings):
    """Tenants share a pool by their weights, tier by tier."""

    type: Literal["weighted-fair"] = "weighted-fair"
    """Tenants share a pool by their weights, tier by tier."""
    tier_label: NonEmpty = "tier"
    """The queue label that says interactive, async or batch; anything else is batch."""
    attribute: NonEmpty = "userid"
    """The metadata attribute that names the tenant."""
    weights: dict[str, Positive] = Field(default_factory=dict)
    """Tenant to weight; `default` is that of all others, 1 if it is not given."""
    cost: CostUnit = CostUnit.REQUESTS
    """requests, or tokens: the prompt's size and the most tokens that the answer may have."""
    max_age: PositiveDuration | None = None
    """Seconds after which a request that waits here goes first; default: never."""


MergeSettings = Annotated[
    RandomRobinPolicy | TierPriorityPolicy | WeightedFairPolicy, Field(discriminator="type")
]
