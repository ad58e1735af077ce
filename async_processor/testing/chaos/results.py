"""Reads the result list without taking anything off it: what stands there at the end counts."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from contextlib import suppress
from typing import Final

import msgspec

from async_processor.errors import BrokerRefused, BrokerUnavailable
from async_processor.redis_io.client import RedisClient

_AT_ONCE: Final = 2000
_LOOK_SECONDS: Final = 0.1


class _Result(msgspec.Struct):
    id: str
    status_code: int | None = None
    error_code: str = ""

    @property
    def kind(self) -> str:
        return self.error_code or str(self.status_code)


class Results:
    """Follows a list, and knows when each result was first seen (monotonic seconds)."""

    def __init__(self, client: RedisClient, name: str) -> None:
        self._client = client
        self._name = name
        self._read = 0
        self.kinds: dict[str, list[str]] = defaultdict(list)
        """By request id, the status or error code of every result."""
        self.seen_at: dict[str, float] = {}

    def __len__(self) -> int:
        return self._read

    def begin_again(self) -> None:
        """The list was deleted: what comes stands at its beginning."""
        self._read = 0

    async def follow(self) -> None:
        """Look again and again until cancelled; while the broker is away nothing is seen."""
        while True:
            with suppress(BrokerUnavailable, BrokerRefused):
                await self.look()
            await asyncio.sleep(_LOOK_SECONDS)

    async def look(self) -> None:
        """Read what has come; raises as `RedisClient.execute`."""
        while True:
            # Pushed at the head: the oldest is the last, and stays where it is.
            first = -(self._read + 1)
            newest_first = await self._client.execute(
                "LRANGE", self._name, first - _AT_ONCE + 1, first
            )
            for body in reversed(newest_first):
                self._take(msgspec.json.decode(body, type=_Result))
            if len(newest_first) < _AT_ONCE:
                return

    def _take(self, result: _Result) -> None:
        self._read += 1
        self.kinds[result.id].append(result.kind)
        self.seen_at.setdefault(result.id, time.monotonic())
