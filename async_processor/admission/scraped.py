"""What `endpoint-scrape` reads, and how its budget comes from it."""

from __future__ import annotations

from collections.abc import Mapping

import httpx

from async_processor.admission.sensor_gate import BudgetRule
from async_processor.admission.settings import EndpointScrapeGate, ScrapeAdmission, ValueType
from async_processor.sensors.scrape import Pods, ScrapeSource
from async_processor.sensors.selector import Selector


def source(settings: EndpointScrapeGate, client: httpx.AsyncClient) -> ScrapeSource:
    """The pages and the series; gates that differ in nothing else share it."""
    return ScrapeSource(
        urls=settings.pages,
        selector=_selector(settings.metric, settings.labels),
        fullest_is_least=settings.value_type is ValueType.BUDGET,
        max_count=settings.max_count_per_pod,
        absent=settings.absent_value,
        pods=_pods(settings),
        client=client,
    )


def rule(settings: EndpointScrapeGate) -> BudgetRule:
    """Saturation or budget, less what stays free."""
    return BudgetRule(
        saturation=settings.value_type is ValueType.SATURATION,
        threshold=settings.baseline,
        fallback=settings.fallback,
        counted=settings.admission is ScrapeAdmission.COUNTED,
    )


def _pods(settings: EndpointScrapeGate) -> Pods | None:
    if not settings.pods_metric:
        return None
    return Pods(
        url=settings.pods_url or settings.pages[0],
        selector=_selector(settings.pods_metric, settings.pods_labels),
    )


def _selector(metric: str, labels: Mapping[str, str]) -> Selector:
    return Selector(metric=metric, labels=frozenset(labels.items()))
