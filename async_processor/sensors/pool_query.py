"""How much room a pool has, of how many places, and as of when: one PromQL query for all of it.

Each figure is a series of its own, told apart by the label `figure`, so that all are of one moment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import httpx

from async_processor.sensors.base import BadAnswer, Measurement
from async_processor.sensors.promql import NO_SAMPLE, evaluated

LABEL: Final = "figure"


class Figure(StrEnum):
    """What a series says: the value; how many requests the value 1 stands for; the Unix seconds of
    the oldest sample behind the value."""

    VALUE = "value"
    CAPACITY = "capacity"
    SAMPLED_AT = "sampled_at"


@dataclass(frozen=True, kw_only=True)
class PoolQuerySource:
    """One query at one Prometheus; `url` is the server's base URL.

    `lag` is within how many seconds a start shows in a sample.
    """

    url: str
    query: str
    lag: float
    client: httpx.AsyncClient = field(compare=False, repr=False)

    @property
    def name(self) -> str:
        """The query."""
        return self.query

    async def read(self, timeout: float) -> Measurement:
        """Evaluate now; raises as every `Source` does."""
        found = await evaluated(self.client, self.url, self.query, timeout)
        figures = {series.metric.get(LABEL): series for series in found}
        if any(figure not in figures for figure in Figure):
            raise BadAnswer(NO_SAMPLE)
        value, sampled_at = figures[Figure.VALUE], figures[Figure.SAMPLED_AT]
        moment = value.value[0]
        return Measurement(
            value=value.number(),
            capacity=figures[Figure.CAPACITY].number(),
            moment=moment,
            lag=self.lag + max(0.0, moment - sampled_at.number()),
        )
