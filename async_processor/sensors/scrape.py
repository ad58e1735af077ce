"""A number from the metrics pages of pods, or of their router, without a Prometheus in between.

What several series mean together:

* Counts (`max_count` above 0): the value is their sum over pods x `max_count`. The number of pods
  is read from `pods`, or else it is the number of pages. A start takes a while to be counted.
* Shares: of several series on one page the fullest counts, of several pages the mean.

A page that cannot be read counts as a full pod: what it could take is unknown, and the others go
on. When no page can be read, the source cannot.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx
import msgspec

from async_processor.sensors.base import SHOWS_WITHIN, BadAnswer, Measurement, NoAnswer
from async_processor.sensors.exposition import NotExposition, values
from async_processor.sensors.pages import fetch, shown
from async_processor.sensors.selector import Selector


class Pods(msgspec.Struct, frozen=True, kw_only=True):
    """Where the number of ready pods stands."""

    url: str
    selector: Selector


@dataclass(frozen=True, kw_only=True)
class ScrapeSource:
    """One metric on one or several pages.

    `fullest_is_least` says that a share means room (a budget) rather than use (a saturation).
    `absent` is the value of a page without the series; None: such a page cannot be read.
    """

    urls: tuple[str, ...]
    selector: Selector
    fullest_is_least: bool = False
    max_count: float = 0.0
    absent: float | None = None
    pods: Pods | None = None
    client: httpx.AsyncClient = field(compare=False, repr=False)

    @property
    def name(self) -> str:
        """The metric and where it stands."""
        return f"{self.selector} at {', '.join(map(shown, self.urls))}"

    async def read(self, timeout: float) -> Measurement:
        """Read all pages at once; raises as every `Source` does."""
        pods, *pages = await asyncio.gather(
            self._count_pods(timeout), *(self._page(url, timeout) for url in self.urls)
        )
        if isinstance(pods, NoAnswer | BadAnswer):
            raise pods
        readable = [page for page in pages if isinstance(page, float)]
        failures = [page for page in pages if not isinstance(page, float)]
        if not readable:
            raise failures[0]
        return self._measure(readable, failures, pods)

    def _measure(
        self, readable: Sequence[float], failures: Sequence[Exception], pods: float
    ) -> Measurement:
        note = f"{len(failures)} of {len(self.urls)} pages: {failures[0]}" if failures else ""
        if self.max_count > 0:
            capacity = pods * self.max_count
            full = 0.0 if self.fullest_is_least else self.max_count
            total = sum(readable) + full * len(failures)
            value = total / capacity
            return Measurement(value=value, capacity=capacity, lag=SHOWS_WITHIN, note=note)
        full = 0.0 if self.fullest_is_least else 1.0
        return Measurement(value=(sum(readable) + full * len(failures)) / len(self.urls), note=note)

    async def _page(self, url: str, timeout: float) -> float | NoAnswer | BadAnswer:
        try:
            found = await _scrape(self.client, url, self.selector, timeout)
        except (NoAnswer, BadAnswer) as error:
            return error
        if found:
            return self._together(found)
        if self.absent is not None:
            return self.absent
        return BadAnswer(f"{shown(url)} has no series {self.selector}")

    def _together(self, found: Sequence[float]) -> float:
        if self.max_count > 0:
            return math.fsum(found)
        return min(found) if self.fullest_is_least else max(found)

    async def _count_pods(self, timeout: float) -> float | NoAnswer | BadAnswer:
        """Router replicas may all report the pool: of several series the largest counts."""
        if self.pods is None:
            return float(len(self.urls))
        try:
            found = await _scrape(self.client, self.pods.url, self.pods.selector, timeout)
        except (NoAnswer, BadAnswer) as error:
            return error
        if not found:
            return BadAnswer(f"{shown(self.pods.url)} has no series {self.pods.selector}")
        ready = max(found)
        return ready if ready > 0 else BadAnswer(f"{ready:g} pods are ready")


async def _scrape(
    client: httpx.AsyncClient, url: str, selector: Selector, timeout: float
) -> Sequence[float]:
    answer = await fetch(
        client, url, accept="text/plain;version=0.0.4", timeout=timeout, moves=True
    )
    if not answer.is_success:
        raise BadAnswer(f"{shown(url)} answered {answer.status_code}")
    try:
        found = values(answer.content.decode(), selector.metric, dict(selector.labels))
    except (NotExposition, UnicodeDecodeError) as error:
        raise BadAnswer(f"{shown(url)}: {error}") from error
    unusable = [value for value in found if not math.isfinite(value)]
    if unusable:
        raise BadAnswer(f"{shown(url)}: the value of {selector} is {unusable[0]}")
    return found
