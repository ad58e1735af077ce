"""Start in order, stop in reverse order, and no side task that dies unseen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterable
from typing import Any, Final, Protocol, TypeVar

from async_processor.errors import AsyncProcessorError

FEW: Final = 16
"""Items in one turn of the loop, of a millisecond's work at most each."""

_T = TypeVar("_T")


async def uninterrupted(work: Awaitable[_T]) -> _T:
    """Bring `work` to its end even when the caller is cancelled; it then goes on being cancelled.

    For steps whose answer must not get lost: a claim, a settlement.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done():
            await asyncio.wait([task])
        raise


async def few_at_a_time(items: Iterable[_T]) -> AsyncIterator[_T]:
    """The items, with a turn for all others after every few.

    What each of thousands sets going would else have to be done in one turn of the loop, and
    nothing else meanwhile: no lease extended, no probe answered.
    """
    for number, item in enumerate(items, 1):
        yield item
        if number % FEW == 0:
            await asyncio.sleep(0)


class Service(Protocol):
    """A part with a life of its own. Starting and stopping twice does nothing the second time."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class SideTaskDied(AsyncProcessorError):
    """A side task ended although it should run as long as the daemon."""

    def __init__(self, name: str, cause: BaseException | None) -> None:
        super().__init__(f"side task {name!r} ended: {cause!r}")


class Watch:
    """Named side tasks. The first one that ends by itself is reported by `failure`."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: asyncio.Future[SideTaskDied] | None = None

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` until `stop`; it must not return before."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        self._report(SideTaskDied(task.get_name(), task.exception()))

    def _report(self, death: SideTaskDied) -> None:
        failure = self._outcome()
        if not failure.done():
            failure.set_result(death)

    def _outcome(self) -> asyncio.Future[SideTaskDied]:
        if self._failure is None:
            self._failure = asyncio.get_running_loop().create_future()
        return self._failure

    async def failure(self) -> SideTaskDied:
        """Wait until a side task ends by itself, and say which."""
        return await asyncio.shield(self._outcome())

    async def stop(self) -> None:
        """Cancel every task and wait for its end."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
