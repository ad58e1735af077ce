"""Counting what a broker lost, from what it and the one before it hold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any, Final

import msgspec

from async_processor.redis_io.client import Argument
from async_processor.redis_io.connect import open_client
from async_processor.testing.chaos.stage import QUEUE, RESULTS
from async_processor.testing.eventually import eventually
from async_processor.testing.servers import RedisServer

PATIENCE: Final = 60.0


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """What became of requests that their producer was told to be safe.

    `lost` have no result. Of `doubled` a reader who reads at once has two: one from before, and
    one from after.
    """

    name: str
    accepted: int
    lost: int
    doubled: int


def count(name: str, accepted: Collection[str], bodies: Iterable[bytes]) -> Loss:
    """`bodies` are the results from before and after; a copy is the same to the byte."""
    found = defaultdict[str, set[bytes]](set)
    for body in bodies:
        found[msgspec.json.decode(body)["id"]].add(body)
    return Loss(
        name=name,
        accepted=len(accepted),
        lost=len(set(accepted) - found.keys()),
        doubled=sum(len(results) > 1 for results in found.values()),
    )


async def ask(server: RedisServer, *command: Argument) -> Any:
    """Send one command over a connection of its own."""
    client = open_client(server.url)
    try:
        return await client.execute(*command)
    finally:
        await client.close()


async def result_bodies(server: RedisServer) -> list[bytes]:
    """What stands on the result list."""
    bodies: list[bytes] = await ask(server, "LRANGE", RESULTS, 0, -1)
    return bodies


async def await_results(server: RedisServer, least: int) -> None:
    """Wait until so many stand on the result list."""

    async def there() -> bool:
        return len(await result_bodies(server)) >= least

    await eventually(there, within=PATIENCE)


async def await_idle(server: RedisServer) -> None:
    """Wait until nothing waits, is claimed or is due for a retry."""

    async def idle() -> bool:
        keys = (QUEUE, f"{{{QUEUE}}}:claims", "retry-sortedset")
        return not await ask(server, "EXISTS", *keys)

    await eventually(idle, within=PATIENCE)
