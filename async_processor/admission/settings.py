"""The gates that a configuration can name, one model per type.

To add a gate: write its model, add it to `GateSettings`, take its name out of `NOT_YET`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from async_processor.fields import (
    Count,
    HttpUrlWithQuery,
    NonEmpty,
    NonNegative,
    Number,
    PositiveDuration,
    RedisUrl,
    Section,
    Share,
)

NOT_YET: Final = frozenset(
    {
        "prometheus-budget",
        "redis",
        "redis-leased-rate",
        "tier-priority-admission",
        "vllm-pool",
    }
)
"""Gate types that a configuration may rightly name and that this version cannot build."""


class GatingMode(StrEnum):
    """What a gate does with a request over its limit."""

    BLOCKING = "blocking"
    CLASSIFYING = "classifying"


class QuotaMode(StrEnum):
    """What a quota counts."""

    RATE_LIMIT = "rate-limit"
    CONCURRENCY = "concurrency"


class ValueType(StrEnum):
    """What a scraped number means."""

    SATURATION = "saturation"
    BUDGET = "budget"


class ScrapeAdmission(StrEnum):
    """Whether slots given out since the last scrape count as used."""

    OFF = "off"
    COUNTED = "counted"


class GateSection(Section):
    """What all gates have in common: a parameter may be a number where a text is meant."""

    model_config: ClassVar[ConfigDict] = ConfigDict(coerce_numbers_to_str=True)
    planned: ClassVar[frozenset[str]] = frozenset({"shared"})


class ConstantGate(GateSection):
    """Always open."""

    type: Literal["constant"] = "constant"
    """Always open."""


class LocalMaxConcurrencyGate(GateSection):
    """At most `limit` requests at once in this process."""

    type: Literal["local-max-concurrency"] = "local-max-concurrency"
    """At most `limit` requests at once in this process."""
    limit: Count
    """Requests in flight."""
    gating_mode: GatingMode = GatingMode.CLASSIFYING
    """classifying refuses over the limit, blocking waits."""


class PrometheusQueryGate(GateSection):
    """The budget is the answer of a query."""

    type: Literal["prometheus-query"] = "prometheus-query"
    """The budget is the answer of a query."""
    query: NonEmpty
    """PromQL with one sample as its answer, the budget in [0, 1]."""
    fallback: Share = 0.0
    """The budget while Prometheus cannot be read."""
    pool: str = ""
    """The `inference_pool` label of this gate's metrics; nothing else."""


class PrometheusSaturationGate(GateSection):
    """Closes as the router's flow control reports the pool saturated."""

    type: Literal["prometheus-saturation"] = "prometheus-saturation"
    """Closes as the router's flow control reports the pool saturated."""
    pool: NonEmpty
    """The `inference_pool` label of the router's metrics."""
    namespace: str = ""
    """The `namespace` label of the router's metrics; empty: any."""
    threshold: Annotated[Number, Field(gt=0, le=1)] = 0.8
    """The saturation from which on the gate is closed."""
    fallback: Share = 0.0
    """The saturation to assume while Prometheus cannot be read: 0 is open, 1 closed."""


def _one_or_more(value: object) -> object:
    return (value,) if isinstance(value, str) else value


class EndpointScrapeGate(GateSection):
    """The budget comes from a metric that the pods or their router expose."""

    type: Literal["endpoint-scrape"] = "endpoint-scrape"
    """The budget comes from a metric that the pods or their router expose."""
    url: HttpUrlWithQuery | None = None
    """The metrics page; this or urls is required."""
    urls: Annotated[tuple[HttpUrlWithQuery, ...], BeforeValidator(_one_or_more)] = ()
    """Several metrics pages, one per pod."""
    metric: NonEmpty
    """The name of the series."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels that the series must carry."""
    value_type: ValueType = ValueType.SATURATION
    """Whether the metric is a saturation (budget = 1 - value) or a budget itself."""
    max_count_per_pod: NonNegative = 0.0
    """With this above 0 the metric is a count, and this many per pod is full."""
    baseline: Share = 0.0
    """Subtracted from the budget, so that this share of the pool stays free."""
    fallback: Share = 0.0
    """The budget while the page cannot be read."""
    absent_value: Number | None = None
    """What a missing series counts as; default: unreadable."""
    admission: ScrapeAdmission = ScrapeAdmission.OFF
    """counted: slots given out since the last scrape count as used."""
    pods_url: HttpUrlWithQuery | None = None
    """Where the number of ready pods is read; default: the same page."""
    pods_metric: str = ""
    """The series that tells the number of ready pods; default: one pod per url."""
    pods_labels: dict[str, str] = Field(default_factory=dict)
    """Labels that the pods series must carry."""

    @model_validator(mode="after")
    def _has_a_page(self) -> EndpointScrapeGate:
        if (self.url is None) == (not self.urls):
            raise ValueError("needs url or urls, and not both")
        return self

    @model_validator(mode="after")
    def _can_count(self) -> EndpointScrapeGate:
        if self.admission is ScrapeAdmission.COUNTED and (
            self.value_type is not ValueType.SATURATION or not self.max_count_per_pod
        ):
            raise ValueError(
                "admission: counted needs max_count_per_pod above 0 and value_type: saturation"
            )
        if (self.pods_url or self.pods_labels) and not self.pods_metric:
            raise ValueError("pods_url and pods_labels need pods_metric")
        return self

    @property
    def pages(self) -> tuple[str, ...]:
        """Every page to read."""
        return self.urls or ((self.url,) if self.url else ())


class RedisGateSection(GateSection):
    """What gates over a Redis have in common."""

    address: str = ""
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
    prefix: Annotated[str, Field(min_length=1, pattern=r"^[^{}]*$")] = "quota:"
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


class CompositeGate(GateSection):
    """Lets through what all of its gates let through."""

    type: Literal["composite"] = "composite"
    """Lets through what all of its gates let through."""
    gates: Annotated[tuple[GateSettings, ...], Field(min_length=1)]
    """The gates, asked in this order; the smallest budget counts."""


class WaitOnRefuseGate(GateSection):
    """Lets requests wait in memory that its gate would refuse."""

    type: Literal["wait-on-refuse"] = "wait-on-refuse"
    """Lets requests wait in memory that its gate would refuse."""
    gate: GateSettings
    """The gate that decides."""


GateSettings = Annotated[
    ConstantGate
    | LocalMaxConcurrencyGate
    | EndpointScrapeGate
    | PrometheusQueryGate
    | PrometheusSaturationGate
    | RedisQuotaGate
    | CompositeGate
    | WaitOnRefuseGate,
    Field(discriminator="type"),
]

CompositeGate.model_rebuild()
WaitOnRefuseGate.model_rebuild()
