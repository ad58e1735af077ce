"""A `RedisClient` for Redis Cluster: every command finds the node that serves its slot."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from redis.asyncio.cluster import RedisCluster
from redis.exceptions import ResponseError

from async_processor.errors import BrokerRefused, BrokerUnavailable
from async_processor.redis_io import address, errors
from async_processor.redis_io.client import Argument, Command, Line
from async_processor.redis_io.outage import Outage


class ClusterClient:
    """Keys of one command must share a slot; the commands of a pipeline need not."""

    clustered = True

    def __init__(self, url: str, options: dict[str, Any], outage: Outage) -> None:
        self._place = address.place(url)
        self._outage = outage
        self._cluster = RedisCluster.from_url(url, **options)

    @property
    def outage(self) -> Outage:
        return self._outage

    async def execute(self, *command: Argument, wait: float = 0) -> Any:
        size = sum(len(part) for part in command if isinstance(part, (str, bytes)))
        seconds = address.command_seconds(size) + address.CONNECT_SECONDS + wait
        try:
            async with asyncio.timeout(seconds):
                answer = await self._cluster.execute_command(*command)
        except ResponseError as error:
            raise self._noted(errors.from_answer(error)) from None
        except errors.FOREIGN as error:
            raise self._noted(errors.from_talking(error, self._place)) from None
        self._outage.answered()
        return answer

    async def pipeline(self, commands: Sequence[Command], wait: float = 0) -> list[Any]:
        calls = (self.execute(*command, wait=wait) for command in commands)
        return list(await asyncio.gather(*calls))

    async def line(self) -> Line:
        raise BrokerRefused("a cluster has no single connection")

    async def close(self) -> None:
        await self._cluster.aclose()

    def _noted(self, error: Exception) -> Exception:
        if isinstance(error, BrokerUnavailable):
            self._outage.failed()
        return error
