"""Drops the receipts of enqueued chunks, in the background and many at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from async_processor.errors import BrokerUnavailable

_GATHERING_S: Final = 0.1
"""Those of requests that follow each other are dropped together."""


class Receipts:
    """`drop` deletes receipts from the broker; one that stays there expires by itself."""

    def __init__(self, drop: Callable[[Sequence[str]], Awaitable[None]]) -> None:
        self._drop = drop
        self._spent: list[str] = []
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    def spend(self, receipt: str) -> None:
        """The receipt has served its purpose."""
        self._spent.append(receipt)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._drop_all(), name="drop receipts")

    async def close(self) -> None:
        """Drop all that are left."""
        self._closing.set()
        if self._task is not None:
            await self._task

    async def _drop_all(self) -> None:
        while self._spent:
            await self._gathered()
            batch, self._spent = self._spent, []
            with suppress(BrokerUnavailable):  # it expires by itself
                await self._drop(batch)

    async def _gathered(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_GATHERING_S):
                await self._closing.wait()
