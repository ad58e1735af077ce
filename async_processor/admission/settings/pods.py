"""Gates that look at the pods, or at their router, by themselves."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from async_processor.admission.settings.section import GateSection
from async_processor.fields import HttpUrlWithQuery, NonEmpty, NonNegative, Number, Share


class ValueType(StrEnum):
    """What a scraped number means."""

    SATURATION = "saturation"
    BUDGET = "budget"


class ScrapeAdmission(StrEnum):
    """Whether slots given out since the last scrape count as used."""

    OFF = "off"
    COUNTED = "counted"


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
