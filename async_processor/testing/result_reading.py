"""Counts the results that come while a test goes on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from async_processor.producer.client import Producer


@asynccontextmanager
async def reading(producer: Producer) -> AsyncIterator[Counter[str]]:
    """Counts results by id as they come."""
    seen: Counter[str] = Counter()

    async def count() -> None:
        async for taken in producer.results():
            if taken.result.status_code != 200:
                raise AssertionError(taken.result)
            seen[taken.result.id] += 1
            await taken.ack()

    task = asyncio.create_task(count())
    try:
        yield seen
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
