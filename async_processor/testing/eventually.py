"""Waiting for a condition of the real world instead of for a fixed time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

T = TypeVar("T")

PATIENCE: Final = 120.0
"""Seconds for what happens soon: only what never happens takes so long, on any machine."""


async def eventually(condition: Callable[[], Awaitable[T]], *, within: float = PATIENCE) -> T:
    """Ask again and again until the answer is true, and return it.

    Raises:
        TimeoutError: it was not within that many seconds.
    """
    async with asyncio.timeout(within):
        while True:
            answer = await condition()
            if answer:
                return answer
            await asyncio.sleep(0.01)


async def until(condition: Callable[[], bool], *, within: float = PATIENCE) -> None:
    """Like `eventually`, for what can be seen without waiting."""

    async def seen() -> bool:
        return condition()

    await eventually(seen, within=within)
