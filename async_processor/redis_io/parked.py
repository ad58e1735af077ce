"""Puts parked messages back into their queue, from the lots in which they wait."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from async_processor.redis_io.client import RedisClient
from async_processor.redis_io.keys import lot_key, queue_keys
from async_processor.redis_io.scripts import RECALL

_AT_ONCE: Final = 256


async def lots(client: RedisClient, queue_name: str) -> Sequence[str]:
    """The lots of a queue in which messages wait; raises as `RedisClient.execute`."""
    names = await client.execute("ZRANGE", queue_keys(queue_name).lots, 0, -1)
    return [name.decode() for name in names]


async def put_back(
    client: RedisClient,
    queue_name: str,
    lot: str,
    limit: float = math.inf,
    *,
    highest: str = "+inf",
) -> int:
    """Put up to `limit` messages of a lot back, a bounded number in each step; returns how many.

    Only those whose score is at most `highest`; "now" is the broker's time.
    """
    total = 0
    while total < limit:
        step = int(min(limit - total, _AT_ONCE))
        keys = (queue_name, queue_keys(queue_name).lots, lot_key(queue_name, lot))
        returned: int = await RECALL.run(client, keys, (lot, highest, step))
        total += returned
        if returned < step:
            break
    return total
