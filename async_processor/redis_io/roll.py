"""The roll of the replicas that live, in Redis and on its clock."""

from __future__ import annotations

import secrets
from typing import Final

import msgspec

from async_processor.redis_io.keys import replicas_key
from async_processor.redis_io.scripts import REPLICAS
from async_processor.redis_io.shared import SharedClient

LEASE_SECONDS: Final = 10.0
"""A replica that has not renewed its entry for so long counts as dead."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What one replica reads from the roll.

    There are `replicas`, and so many (`rank`) come before this one; `roster` stands for just these.
    `agreed` says that all the others keep to that roster. `age` is for how many seconds this one
    has been on the roll without a break, `oldest` the most of the others (0 when there are none);
    whoever does not renew for half a lease makes one.
    """

    replicas: int
    rank: int
    roster: str
    agreed: bool
    age: float
    oldest: float


class RedisRoll:
    """One replica's entry on the roll that stands under the tag of the queue `queue_name`."""

    def __init__(self, client: SharedClient, queue_name: str) -> None:
        self._client = client
        self._key = replicas_key(queue_name)
        self._own = secrets.token_hex(8)

    async def renew(self, kept: str) -> Seen:
        """Stay, and say which roster this replica keeps to. Raises as `Script.run`."""
        replicas, rank, roster, agreed, age, oldest = await self._run(LEASE_SECONDS, kept)
        return Seen(
            replicas=replicas,
            rank=rank,
            roster=roster.decode(),
            agreed=bool(agreed),
            age=age / 1000,
            oldest=oldest / 1000,
        )

    async def leave(self) -> None:
        """Be gone. Raises as `Script.run`."""
        await self._run(0, "")

    async def _run(self, lease: float, kept: str) -> tuple[int, int, bytes, int, int, int]:
        client = await self._client.get()
        arguments = (self._own, round(lease * 1000), kept)
        answer = await REPLICAS.run(client, (self._key,), arguments)
        replicas, rank, roster, agreed, age, oldest = answer
        return replicas, rank, roster, agreed, age, oldest
