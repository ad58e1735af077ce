"""Many small calls as few large ones: what is asked for while a call is under way goes together
into the next. A lone call waits for nobody."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


class Batches(Generic[_Item, _Answer]):
    """`send` is given up to `items` items of about `max_bytes` together, and answers for each.

    What it raises, all who asked get. An item is sent even if who asked for it does not wait.
    """

    def __init__(
        self,
        send: Callable[[Sequence[_Item]], Awaitable[Sequence[_Answer]]],
        *,
        items: int,
        max_bytes: int = 2**30,
        size: Callable[[_Item], int] = lambda _: 0,
    ) -> None:
        self._send = send
        self._items = items
        self._max_bytes = max_bytes
        self._size = size
        self._waiting: deque[tuple[_Item, asyncio.Future[_Answer]]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, item: _Item) -> _Answer:
        """The answer for one item; raises what `send` raises."""
        answer: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._send_all(), name="batches")
        return await answer

    async def _send_all(self) -> None:
        while self._waiting:
            batch = self._next()
            answers = [answer for _, answer in batch]
            try:
                told = await self._send([item for item, _ in batch])
            except Exception as error:  # noqa: BLE001 - it is theirs who asked
                _fail(answers, error)
            except asyncio.CancelledError:
                for answer in (*answers, *(answer for _, answer in self._waiting)):
                    answer.cancel()
                raise
            else:
                for answer, one in zip(answers, told, strict=True):
                    if not answer.done():
                        answer.set_result(one)

    def _next(self) -> list[tuple[_Item, asyncio.Future[_Answer]]]:
        batch = [self._waiting.popleft()]
        filled = self._size(batch[0][0])
        while self._waiting and len(batch) < self._items:
            filled += self._size(self._waiting[0][0])
            if filled > self._max_bytes:
                break
            batch.append(self._waiting.popleft())
        return batch


def _fail(answers: Sequence[asyncio.Future[_Answer]], error: Exception) -> None:
    for answer in answers:
        if not answer.done():
            answer.set_exception(error)
