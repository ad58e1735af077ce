"""The roll of the replicas that live, in Redis and on its clock."""

from __future__ import annotations

import secrets
from typing import Final

from async_processor.redis_io.keys import replicas_key
from async_processor.redis_io.scripts import REPLICAS
from async_processor.redis_io.shared import SharedClient

LEASE_SECONDS: Final = 10.0
"""A replica that has not renewed its entry for so long counts as dead."""


class RedisRoll:
    """One replica's entry on the roll that stands under the tag of the queue `queue_name`."""

    def __init__(self, client: SharedClient, queue_name: str) -> None:
        self._client = client
        self._key = replicas_key(queue_name)
        self._own = secrets.token_hex(8)

    async def renew(self) -> tuple[int, int]:
        """Stay; returns how many there are, and this one's rank. Raises as `Script.run`."""
        count, rank = await self._run(LEASE_SECONDS)
        return count, rank

    async def leave(self) -> None:
        """Be gone. Raises as `Script.run`."""
        await self._run(0)

    async def _run(self, lease: float) -> tuple[int, int]:
        client = await self._client.get()
        count, rank = await REPLICAS.run(client, (self._key,), (self._own, round(lease * 1000)))
        return count, rank
