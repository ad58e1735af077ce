"""Counters and gauges of one thread.

Everything that counts runs in the event loop's thread, and so does whoever reads: no locks are
taken on the way of a request, which moves a dozen of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

Kind = type[CounterMetricFamily] | type[GaugeMetricFamily]


class Tally:
    """One labelled member of a series."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def inc(self, amount: float = 1) -> None:
        """Count up."""
        self.value += amount

    def dec(self) -> None:
        """Count down by one; for gauges alone."""
        self.value -= 1

    def set(self, value: float) -> None:
        """Show this value; for gauges alone."""
        self.value = value


class Tallies(Collector):
    """All members of one series, by their labels; without labels it has its one from the start."""

    def __init__(
        self,
        kind: Kind,
        name: str,
        documentation: str,
        labels: Sequence[str],
        *,
        registry: CollectorRegistry,
    ) -> None:
        self._kind = kind
        self._name = name
        self._documentation = documentation
        self._labels = labels
        self._members: dict[tuple[str, ...], Tally] = {}
        if not labels:
            self.labels()
        registry.register(self)

    def labels(self, *values: str) -> Tally:
        """The member with these label values, made at its first mention."""
        if values not in self._members:
            self._members[values] = Tally()
        return self._members[values]

    def show(self, values: Iterable[tuple[tuple[str, ...], float]]) -> None:
        """Show these members, by their label values, and no others."""
        self._members = {}
        for labels, value in values:
            self.labels(*labels).set(value)

    def remove(self, *values: str) -> None:
        """Show this member no more, if there is one."""
        self._members.pop(values, None)

    def keep(self, wanted: Callable[[Sequence[str], Tally], bool]) -> None:
        """Show only the wanted members from now on."""
        unwanted = [each for each in self._members.items() if not wanted(*each)]
        for values, _ in unwanted:
            del self._members[values]

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        family = self._kind(self._name, self._documentation, labels=self._labels)
        for values, member in self._members.items():
            family.add_metric(values, member.value)
        yield family
