"""Histograms that count since the start, and snapshots that say how things stand now.

Bounds are written as the Go client writes them (`le="0"`, `le="1.8e+06"`), because dashboards and
alerts select buckets by this text.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Generic, Protocol, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar


class Distribution(Protocol):
    """What a family needs of one labelled member to write its buckets."""

    def cumulative(self) -> Sequence[int]:
        """How many values lie at or below each bound, and the total as the last element."""
        ...

    def sum(self) -> float:
        """The sum of the values."""
        ...

    def exemplar(self, bucket: int) -> Exemplar | None:
        """A trace of one of a bucket's values."""
        ...


class Histogram:
    """Counts observations since the start; written by the event loop's thread only.

    With `trace_id`, which tells the current trace or "", each bucket remembers its last one.
    """

    __slots__ = ("_bounds", "_counts", "_exemplars", "_sum", "_trace_id")

    def __init__(self, bounds: Sequence[int], trace_id: Callable[[], str] | None = None) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        self._trace_id = trace_id
        self._exemplars: dict[int, Exemplar] = {}

    def observe(self, value: float) -> None:
        bucket = bisect_left(self._bounds, value)
        self._counts[bucket] += 1
        self._sum += value
        if self._trace_id is not None and (trace := self._trace_id()):
            self._exemplars[bucket] = Exemplar({"trace_id": trace}, value)

    def exemplar(self, bucket: int) -> Exemplar | None:
        return self._exemplars.get(bucket)

    def cumulative(self) -> Sequence[int]:
        return list(accumulate(self._counts))

    def sum(self) -> float:
        return self._sum


class Snapshot:
    """How a set of values is spread at this moment; each `replace` forgets the last one.

    Only the counts are known, so the sum is an estimate from above: each value counts as its
    bucket's upper bound, and those above the last bound as that bound.
    """

    __slots__ = ("_bounds", "_cumulative")

    def __init__(self, bounds: Sequence[int]) -> None:
        self._bounds = bounds
        self._cumulative: Sequence[int] = [0] * (len(bounds) + 1)

    def replace(self, cumulative: Sequence[int]) -> None:
        """Take over the counts at or below each bound, the total last."""
        if len(cumulative) != len(self._bounds) + 1:
            raise ValueError(f"{len(cumulative)} counts for {len(self._bounds)} bounds and a total")
        self._cumulative = cumulative

    def cumulative(self) -> Sequence[int]:
        return self._cumulative

    def exemplar(self, bucket: int) -> Exemplar | None:
        """Nobody knows whose values these are."""
        del bucket
        return None

    def sum(self) -> float:
        below, total = 0, 0.0
        for bound, count in zip((*self._bounds, self._bounds[-1]), self._cumulative, strict=True):
            total += bound * (count - below)
            below = count
        return total


D = TypeVar("D", bound=Distribution)

Bucket = tuple[str, float] | tuple[str, float, Exemplar]


class Family(Collector, Generic[D]):
    """All members of one histogram series, by their labels."""

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str],
        *,
        bounds: Sequence[int],
        member: Callable[[Sequence[int]], D],
        registry: CollectorRegistry,
    ) -> None:
        self._name = name
        self._documentation = documentation
        self._labels = labels
        self._bounds = bounds
        self._member = member
        self._members: dict[tuple[str, ...], D] = {}
        self._texts = [*(f"{bound:g}" for bound in bounds), "+Inf"]
        registry.register(self)

    def labels(self, *values: str) -> D:
        """The member with these label values, made at its first mention."""
        if values not in self._members:
            self._members[values] = self._member(self._bounds)
        return self._members[values]

    def keep(self, wanted: Callable[[Sequence[str], D], bool]) -> None:
        """Show only the wanted members from now on."""
        unwanted = [each for each in self._members.items() if not wanted(*each)]
        for values, _ in unwanted:
            del self._members[values]

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(self._name, self._documentation, labels=self._labels)
        for values, member in self._members.items():
            family.add_metric(values, buckets=self._buckets(member), sum_value=member.sum())
        yield family

    def _buckets(self, member: D) -> Sequence[Bucket]:
        counts = zip(self._texts, member.cumulative(), strict=True)
        return [
            (text, float(count))
            if (found := member.exemplar(n)) is None
            else (text, float(count), found)
            for n, (text, count) in enumerate(counts)
        ]
