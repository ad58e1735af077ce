"""Lots: where messages wait apart from their queue until a gate has room for them again.

A lot is a sorted set of its own, and `lots` lists those that hold something under their lowest
score. So one look says which lot has expired messages, whatever the number of lots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from async_processor.redis_io import parked
from async_processor.redis_io.keys import lot_key, queue_keys
from async_processor.redis_io.scripts import COUNT
from async_processor.transport.redis_sorted_set.link import Link

_LOTS_AT_ONCE: Final = 100


async def lots(link: Link, queue_name: str) -> Sequence[str]:
    """The lots in which messages wait."""
    return await parked.lots(link.client, queue_name)


async def recall(link: Link, queue_name: str, lot: str, limit: int) -> int:
    """Put up to `limit` messages back into the queue."""
    return await parked.put_back(link.client, queue_name, lot, limit)


async def recall_expired(link: Link, queue_name: str, limit: int) -> None:
    """Put parked messages whose score has passed back, up to `limit` of each lot."""
    due = await link.client.execute(
        "ZRANGEBYSCORE", queue_keys(queue_name).lots, "-inf", repr(link.clock.now()),
        "LIMIT", 0, _LOTS_AT_ONCE,
    )  # fmt: skip
    for lot in due:
        await parked.put_back(link.client, queue_name, lot.decode(), limit, highest="now")


async def count(link: Link, queue_name: str, bounds: Sequence[str]) -> Sequence[int]:
    """How many messages wait in all lots, then how many of them up to each bound (a score)."""
    keys = [lot_key(queue_name, lot) for lot in await lots(link, queue_name)]
    totals = [0] * (1 + len(bounds))
    for start in range(0, len(keys), _LOTS_AT_ONCE):
        counts = await COUNT.run(link.client, keys[start : start + _LOTS_AT_ONCE], bounds)
        totals = [total + found for total, found in zip(totals, counts, strict=True)]
    return totals
