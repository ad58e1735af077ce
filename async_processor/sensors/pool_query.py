"""How much room a vLLM pool has, of how many places, as of when, and what fills it: by one query.

Each figure is a series of its own, told apart by the label `figure`, so that all are of one moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import httpx

from async_processor.sensors.base import BadAnswer, Measurement
from async_processor.sensors.promql import NO_SAMPLE, Series, evaluated
from async_processor.sensors.vllm import PodLoad, in_words

LABEL: Final = "figure"


class Figure(StrEnum):
    """What a series says: the room; how many requests the room 1 stands for; the Unix seconds of
    the oldest sample behind it; and the highest of each load in any pod."""

    ROOM = "room"
    CAPACITY = "capacity"
    SAMPLED_AT = "sampled_at"
    KV_CACHE = "kv_cache"
    WAITING = "waiting"
    RUNNING = "running"


@dataclass(frozen=True, kw_only=True)
class PoolQuerySource:
    """One query at one Prometheus; `url` is the server's base URL, and `name` says which pods.

    `lag` is within how many seconds a start shows in a sample; None where the room is not of so
    many places, and starts are not counted against it.
    """

    name: str
    url: str
    query: str
    lag: float | None
    client: httpx.AsyncClient = field(compare=False, repr=False)

    async def read(self, timeout: float) -> Measurement:
        """Evaluate now; raises as every `Source` does."""
        found = await evaluated(self.client, self.url, self.query, timeout)
        figures = {series.metric.get(LABEL, ""): series for series in found}
        room = _needed(figures, Figure.ROOM)
        value, moment = room.number(), room.value[0]
        note = "" if value else _load(figures)
        if self.lag is None:
            return Measurement(value=value, moment=moment, note=note)
        sampled_at = _needed(figures, Figure.SAMPLED_AT).number()
        return Measurement(
            value=value,
            capacity=_needed(figures, Figure.CAPACITY).number(),
            moment=moment,
            lag=self.lag + max(0.0, moment - sampled_at),
            note=note,
        )


def _needed(figures: Mapping[str, Series], figure: Figure) -> Series:
    if figure not in figures:
        raise BadAnswer(NO_SAMPLE)
    return figures[figure]


def _load(figures: Mapping[str, Series]) -> str:
    """In words, where no pod is in the way with a figure that is missing or no number."""
    try:
        most = PodLoad(
            kv_cache=_needed(figures, Figure.KV_CACHE).number(),
            waiting=_needed(figures, Figure.WAITING).number(),
            running=_needed(figures, Figure.RUNNING).number(),
        )
    except BadAnswer:
        return ""
    return in_words(most)
