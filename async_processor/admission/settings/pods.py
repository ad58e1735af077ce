"""Gates that look at the pods, or at their router, by themselves."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from async_processor.admission.settings.section import GateSection
from async_processor.fields import (
    HttpUrl,
    HttpUrlWithQuery,
    NonNegative,
    Number,
    Positive,
    Share,
    host_and_port,
)

VLLM_PORT: Final = 8000
"""Where vLLM listens when it is not told otherwise."""

_MATCHER: Final = (
    r'\s*[a-zA-Z_][a-zA-Z0-9_]*\s*(?:=~|!~|!=|=)\s*(?:"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\')\s*'
)
_MATCHERS: Final = re.compile(rf"{_MATCHER}(?:,{_MATCHER})*,?\s*")


_SERIES: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


class ValueType(StrEnum):
    """What a scraped number means."""

    SATURATION = "saturation"
    BUDGET = "budget"


class ScrapeAdmission(StrEnum):
    """Whether slots given out since the last scrape count as used."""

    OFF = "off"
    COUNTED = "counted"


def _go_default(value: object) -> object:
    """The Go implementation calls its default `budget`."""
    return ScrapeAdmission.OFF if value == "budget" else value


def _one_or_more(value: object) -> object:
    return (value,) if isinstance(value, str) else value


def _series_name(name: str) -> str:
    if not _SERIES.fullmatch(name):
        raise ValueError(
            "must be the name of a series alone; its labels have a setting of their own"
        )
    return name


def _series_name_or_none(name: str) -> str:
    return _series_name(name) if name else name


def _label_name(name: str) -> str:
    if not _LABEL.fullmatch(name):
        raise ValueError("must hold letters, digits and _ only")
    return name


SeriesName = Annotated[str, Field(min_length=1), AfterValidator(_series_name)]
LabelName = Annotated[str, AfterValidator(_label_name)]


class EndpointScrapeGate(GateSection):
    """The budget comes from a metric that the pods or their router expose."""

    type: Literal["endpoint-scrape"] = "endpoint-scrape"
    """The budget comes from a metric that the pods or their router expose."""
    url: HttpUrlWithQuery | None = None
    """The metrics page; this or urls is required."""
    urls: Annotated[tuple[HttpUrlWithQuery, ...], BeforeValidator(_one_or_more)] = ()
    """Several metrics pages, one per pod."""
    metric: SeriesName
    """The name of the series."""
    labels: dict[LabelName, str] = Field(default_factory=dict)
    """Labels that the series must carry."""
    value_type: ValueType = ValueType.SATURATION
    """Whether the metric is a saturation (budget = 1 - value) or a budget itself."""
    max_count_per_pod: NonNegative = 0.0
    """With this above 0 the metric is a count, and this many per pod is full."""
    baseline: Annotated[Number, Field(ge=0, lt=1)] = 0.0
    """Subtracted from the budget, so that this share of the pool stays free."""
    fallback: Share = 0.0
    """The budget while the page cannot be read."""
    absent_value: Number | None = None
    """What a missing series counts as; default: unreadable."""
    admission: Annotated[ScrapeAdmission, BeforeValidator(_go_default)] = ScrapeAdmission.OFF
    """counted: slots given out since the last scrape count as used."""
    pods_url: HttpUrlWithQuery | None = None
    """Where the number of ready pods is read; default: the same page."""
    pods_metric: Annotated[str, AfterValidator(_series_name_or_none)] = ""
    """The series that tells the number of ready pods; default: one pod per url."""
    pods_labels: dict[LabelName, str] = Field(default_factory=dict)
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


def _matchers(text: str) -> str:
    """Without the braces that may stand around them."""
    bare = text.strip()
    if bare.startswith("{") and bare.endswith("}"):
        bare = bare[1:-1]
    if text and not _MATCHERS.fullmatch(bare):
        raise ValueError('must be PromQL label matchers, like namespace="prod",job=~"vllm.*"')
    return bare


def _host_and_port(text: str) -> str:
    return host_and_port(text, VLLM_PORT) if text else ""


class VllmPoolGate(GateSection):
    """Closes as the KV caches of the vLLM pods fill up, or requests wait in them."""

    type: Literal["vllm-pool"] = "vllm-pool"
    """Closes as the KV caches of the vLLM pods fill up, or requests wait in them."""
    urls: Annotated[tuple[HttpUrl, ...], BeforeValidator(_one_or_more)] = ()
    """The pods' servers; this, dns or selector is required."""
    dns: Annotated[str, AfterValidator(_host_and_port)] = ""
    """A host, or host:port, of which every address is a pod; looked up anew for each look."""
    selector: Annotated[str, AfterValidator(_matchers)] = ""
    """PromQL label matchers of the pods' series, asked of prometheus.url."""
    max_kv_cache: Annotated[Number, Field(gt=0, le=1)] = 0.85
    """The share of its KV cache from which on a pod is full."""
    max_waiting_per_pod: NonNegative = 0.0
    """The waiting requests from which on a pod is full; 0: one that waits closes the gate."""
    max_running_per_pod: Positive | None = None
    """The running requests from which on a pod is full; default: they do not matter."""
    fallback: Share = 0.0
    """The budget while no pod can be read."""

    @model_validator(mode="after")
    def _has_pods(self) -> Self:
        if sum(map(bool, (self.urls, self.dns, self.selector))) != 1:
            raise ValueError("needs urls, dns or selector, and only one of them")
        return self
