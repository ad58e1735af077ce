"""What several processes have counted, as if one had: their pages of series, made one.

Counters and histograms are summed up, those of processes that have ended as well. What a gauge says
of a process is summed up too (calls that run); what it says of the world (the backlog) is the same
for all, and the first one's counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from async_processor.telemetry.series import PREFIX

Labels = tuple[tuple[str, str], ...]


class Traced(msgspec.Struct, frozen=True, array_like=True):
    """An exemplar: the labels that name a trace, and the value that was observed in it."""

    labels: dict[str, str]
    value: float


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """One line of a page."""

    name: str
    labels: Labels
    value: float
    traced: Traced | None = None


class Series(msgspec.Struct, frozen=True, array_like=True):
    """One series with all its samples; `kind` is its type in Prometheus' words."""

    name: str
    documentation: str
    kind: str
    samples: tuple[Sample, ...]

    @property
    def counts(self) -> bool:
        """Whether it only ever grows."""
        return self.kind in ("counter", "histogram") and self.name not in _SNAPSHOTS


Page = tuple[Series, ...]

_Rule = Callable[[Sequence[float]], float]


def _first(values: Sequence[float]) -> float:
    return values[0]


def _share(values: Sequence[float]) -> float:
    """Of a budget each process has its part, and the whole of one without a limit."""
    return round(min(1.0, sum(values)), 9)


_SNAPSHOTS: Final = frozenset({f"{PREFIX}deadline_proximity_millis"})
_RULES: Final[dict[str, _Rule]] = {
    **dict.fromkeys(
        (
            f"{PREFIX}queue_depth",
            f"{PREFIX}inflight_requests",
            f"{PREFIX}gate_waiting_requests",
            f"{PREFIX}settle_pending",
            f"{PREFIX}pool_worker_limit",
            "process_resident_memory_bytes",
            "process_virtual_memory_bytes",
            "process_open_fds",
        ),
        sum,
    ),
    f"{PREFIX}dispatch_budget": _share,
    **dict.fromkeys(
        (
            f"{PREFIX}broker_backlog_source_available",
            f"{PREFIX}gate_metric_source_available",
            "process_start_time_seconds",
            "process_max_fds",
        ),
        min,
    ),
    **dict.fromkeys(
        (
            f"{PREFIX}quota_in_use",
            f"{PREFIX}quota_limit",
            f"{PREFIX}drain_limit_rps",
            f"{PREFIX}drain_limit_lease_valid",
            f"{PREFIX}drain_limit_valid_until_seconds",
            f"{PREFIX}queue_config_last_success_timestamp_seconds",
        ),
        max,
    ),
}
"""How the values of gauges become one; of all others the first one's counts."""


def page_of(registry: CollectorRegistry) -> Page:
    """Everything that one process shows."""
    return tuple(
        Series(
            metric.name,
            metric.documentation,
            metric.type,
            tuple(
                Sample(
                    sample.name,
                    tuple(sample.labels.items()),
                    float(sample.value),
                    Traced(dict(sample.exemplar.labels), sample.exemplar.value)
                    if sample.exemplar
                    else None,
                )
                for sample in metric.samples
            ),
        )
        for metric in registry.collect()
    )


def counts_of(page: Page) -> Page:
    """What stays of a process that has ended."""
    return tuple(series for series in page if series.counts)


def merged(pages: Iterable[Page]) -> Page:
    """All pages as one."""
    together: dict[str, list[Series]] = {}
    for page in pages:
        for series in page:
            together.setdefault(series.name, []).append(series)
    return tuple(map(_merged_series, together.values()))


def _merged_series(parts: Sequence[Series]) -> Series:
    rule = sum if parts[0].counts else _RULES.get(parts[0].name, _first)
    found: dict[tuple[str, Labels], list[Sample]] = {}
    for part in parts:
        for sample in part.samples:
            found.setdefault((sample.name, sample.labels), []).append(sample)
    return msgspec.structs.replace(
        parts[0], samples=tuple(_merged_sample(same, rule) for same in found.values())
    )


def _merged_sample(same: Sequence[Sample], rule: _Rule) -> Sample:
    return msgspec.structs.replace(
        same[0],
        value=rule([sample.value for sample in same]),
        traced=next((sample.traced for sample in same if sample.traced), None),
    )


class _Shown(Collector):
    def __init__(self, page: Page) -> None:
        self._page = page

    def collect(self) -> Iterator[Metric]:
        for series in self._page:
            metric = Metric(series.name, series.documentation, series.kind)
            for sample in series.samples:
                traced = sample.traced
                exemplar = Exemplar(traced.labels, traced.value) if traced else None
                labels = dict(sample.labels)
                metric.add_sample(sample.name, labels, sample.value, exemplar=exemplar)
            yield metric


def exposition(page: Page) -> bytes:
    """The page in Prometheus' text format."""
    return generate_latest(_shown(page))


def openmetrics_exposition(page: Page) -> bytes:
    """The same in OpenMetrics' text format."""
    text: bytes = openmetrics.generate_latest(_shown(page))  # type: ignore[no-untyped-call]
    return text


def _shown(page: Page) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(_Shown(page))
    return registry
