"""The producer for code without asyncio: the same calls, on a loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Iterator
from typing import Any, Self, TypeVar

from async_processor.producer.client import Producer
from async_processor.producer.submission import Handle, Submission
from async_processor.producer.taken import Taken
from async_processor.wire.result import Result

_T = TypeVar("_T")


class SyncTaken:
    """Like `Taken`."""

    def __init__(self, owner: SyncProducer, taken: Taken) -> None:
        self._owner = owner
        self._taken = taken

    @property
    def body(self) -> bytes:
        """The result as it lies on the queue."""
        return self._taken.body

    @property
    def result(self) -> Result:
        """Like `Taken.result`."""
        return self._taken.result

    def ack(self) -> None:
        """Like `Taken.ack`."""
        self._owner.wait_for(self._taken.ack())


class SyncProducer:
    """Takes what `Producer` takes; each method waits for the one of the same name there.

    Use it as `with SyncProducer() as producer`. It may be called from several threads.
    """

    def __init__(self, url: str = "", **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="sync-producer", daemon=True
        )
        self._thread.start()
        self._producer = self.wait_for(self._make(url, options))

    async def _make(self, url: str, options: dict[str, Any]) -> Producer:
        return Producer(url, **options)

    def __enter__(self) -> Self:
        self.wait_for(self._producer.start())
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Like `Producer.close`; the second time it does nothing."""
        if self._loop.is_closed():
            return
        try:
            self.wait_for(self._producer.close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def submit(self, submission: Submission, *, mailbox: bool = True) -> Handle:
        """Like `Producer.submit`."""
        return self.wait_for(self._producer.submit(submission, mailbox=mailbox))

    def submit_many(
        self, submissions: Iterable[Submission], *, mailbox: bool = False
    ) -> list[Handle]:
        """Like `Producer.submit_many`."""
        return self.wait_for(self._producer.submit_many(submissions, mailbox=mailbox))

    def result(self, handle: Handle, timeout: float | None = None) -> Result:
        """Like `Producer.result`."""
        return self.wait_for(self._producer.result(handle, timeout))

    def take(self, handle: Handle, timeout: float | None = None) -> SyncTaken:
        """Like `Producer.take`."""
        return SyncTaken(self, self.wait_for(self._producer.take(handle, timeout)))

    def results(self, queue: str = "", *, follow: bool = True) -> Iterator[SyncTaken]:
        """Like `Producer.results`; closing the iterator puts back what was not acknowledged."""
        reader = self._producer.results(queue, follow=follow)
        try:
            while True:
                taken = self.wait_for(_next_of(reader))
                if taken is None:
                    return
                yield SyncTaken(self, taken)
        finally:
            self.wait_for(reader.close())

    def cancel(self, *requests: str | Handle) -> list[bool]:
        """Like `Producer.cancel`."""
        return self.wait_for(self._producer.cancel(*requests))

    def wait_for(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine on the producer's loop; interrupting the wait cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


async def _next_of(reader: Any) -> Taken | None:
    """A StopAsyncIteration cannot cross a future."""
    return await anext(reader, None)
