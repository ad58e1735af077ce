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
    """`drop` deletes receipts from the broker. While it is away they are kept for the next time, or
    for the end; those that stay expire by themselves."""

    def __init__(self, drop: Callable[[Sequence[str]], Awaitable[None]]) -> None:
        self._drop = drop
        self._spent: list[str] = []
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    def spend(self, receipt: str) -> None:
        """The receipt has served its purpose."""
        self._spent.append(receipt)
        self._begin()

    async def close(self) -> None:
        """Drop all that are left."""
        self._closing.set()
        self._begin()
        if self._task is not None:
            await self._task

    def _begin(self) -> None:
        if self._spent and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._drop_all(), name="drop receipts")

    async def _drop_all(self) -> None:
        while self._spent:
            await self._gathered()
            batch, self._spent = self._spent, []
            try:
                await self._drop(batch)
            except BrokerUnavailable:
                self._spent += batch
                return

    async def _gathered(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_GATHERING_S):
                await self._closing.wait()
