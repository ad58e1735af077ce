"""Queues, the pools that work on them, and the order between queues."""

from __future__ import annotations

from typing import Any, ClassVar, Final, Literal

from pydantic import Field

from async_processor.admission.settings import ConstantGate, GateSettings
from async_processor.fields import (
    Count,
    HeaderName,
    HttpUrl,
    NonEmpty,
    OptionalHeaderName,
    PositiveDuration,
    Section,
    UrlPath,
)

NOT_YET: Final = frozenset({"tier-priority", "weighted-fair"})
"""Merge policies that a configuration may rightly name and that this version cannot build."""


def _same_as_queue_name(validated: dict[str, Any]) -> str:
    return str(validated["queue_name"])


class QueueSettings(Section):
    """One request queue: where its requests go and what lets them through."""

    planned: ClassVar[frozenset[str]] = frozenset({"model"})

    queue_name: NonEmpty = "request-sortedset"
    """The sorted set that producers write to."""
    id: NonEmpty = Field(default_factory=_same_as_queue_name)
    """The `queue_id` label of metrics; default: queue_name."""
    igw_base_url: HttpUrl
    """The inference gateway, http:// or https://."""
    request_path_url: UrlPath = "/v1/completions"
    """Where a request goes that names no endpoint."""
    inference_objective: str = ""
    """Sent as x-llm-d-inference-objective and x-gateway-inference-objective; empty: not sent."""
    worker_pool_id: NonEmpty = "default"
    """Which of worker_pools works on this queue."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels of every request of this queue, e.g. {tier: batch}."""
    result_queue_name: str = ""
    """Results of this queue go here, whatever the message says; empty: the message decides."""
    result_ttl_seconds: PositiveDuration | None = None
    """Seconds after which the result list expires, counted from its last result; default: never."""
    allowed_headers: tuple[HeaderName, ...] | None = None
    """Names of the message headers that are sent on; default: all that the rules allow."""
    allowed_result_queues: tuple[NonEmpty, ...] = ("*",)
    """Patterns of the result queues that a message may name."""
    gate: GateSettings = ConstantGate()
    """What lets requests of this queue through."""


class PoolSettings(Section):
    """A number of workers that share a gate."""

    id: NonEmpty = "default"
    """Queues name it as worker_pool_id; the `pool_name` label of metrics."""
    workers: Count = 64
    """Calls that may run at once."""
    gate: GateSettings = ConstantGate()
    """Asked before each call; it may let requests wait in memory."""


class MergeSettings(Section):
    """The order in which queues of one pool get its slots."""

    planned: ClassVar[frozenset[str]] = frozenset(
        {
            "attribute",
            "cost",
            "lane_objectives",
            "max_age",
            "priority_header",
            "tier_label",
            "weights",
        }
    )

    type: Literal["random-robin"] = "random-robin"
    """Which policy; random-robin gives every queue with work the same chance."""
    fairness_header: OptionalHeaderName = "x-llm-d-inference-fairness-id"
    """The header that carries the tenant; empty turns it off."""
    fairness_attribute: str = "userid"
    """The metadata attribute that names the tenant; empty turns it off."""
    objective_header: OptionalHeaderName = "x-llm-d-inference-objective"
    """The header that carries the inference objective; empty turns it off."""
