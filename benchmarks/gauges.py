"""Looks at metrics pages again and again while something runs."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

import httpx

from async_processor.sensors.exposition import values

T = TypeVar("T")


class Page:
    """A metrics page as it was."""

    def __init__(self, text: str) -> None:
        self._text = text

    def sum(self, metric: str, labels: Mapping[str, str] | None = None) -> float:
        """Of all series of a metric; NaN where there is none."""
        found = values(self._text, metric, labels or {})
        return math.fsum(found) if found else math.nan


async def pages(client: httpx.AsyncClient, urls: Sequence[str]) -> list[Page]:
    """All pages, read at once."""
    answers = await asyncio.gather(*(client.get(url) for url in urls))
    return [Page(answer.raise_for_status().text) for answer in answers]


class Samples(Generic[T]):
    """What was seen, and when, in seconds since the start."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, T]] = []


@asynccontextmanager
async def sampled(look: Callable[[], Awaitable[T]], *, every: float) -> AsyncIterator[Samples[T]]:
    """Take a look every so many seconds; a look that fails ends the benchmark at its end."""
    samples, start = Samples[T](), time.monotonic()

    async def watch() -> None:
        due = start
        while True:
            seen = await look()
            samples.seen.append((time.monotonic() - start, seen))
            due = max(due + every, time.monotonic())
            await asyncio.sleep(due - time.monotonic())

    async with asyncio.TaskGroup() as group:
        task = group.create_task(watch())
        yield samples
        task.cancel()
