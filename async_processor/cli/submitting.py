"""The work of `submit`: a stream of requests in, ids or results out, in bounded memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, BinaryIO, Final

import msgspec
import typer

from async_processor.cli.lines import BadLine, Line, read_lines
from async_processor.cli.progress import Bar, progress_bar
from async_processor.cli.results import write
from async_processor.errors import ConfigurationError, Problem
from async_processor.producer import (
    Handle,
    InvalidSubmission,
    Producer,
    Submission,
    Taken,
    UnreadableResult,
)

if TYPE_CHECKING:
    from async_processor.producer.pubsub import PubSubProducer

    AnyProducer = Producer | PubSubProducer

_OUTSTANDING: Final = 10_000
"""Results waited for at a time; further requests are submitted as these come."""
_GRACE_S: Final = 60.0
"""A running daemon answers at the deadline; when it is still silent then, there is none."""


class Tally:
    """What became of the requests so far."""

    def __init__(self) -> None:
        self.submitted = 0
        self.succeeded = 0
        self.failed = 0
        self.missing = 0

    def count(self, taken: Taken) -> None:
        """One more result."""
        try:
            good = taken.result.succeeded
        except UnreadableResult:
            good = False
        self.succeeded += good
        self.failed += not good


class Job:
    """One run of `submit`.

    With `checkable` the source is checked whole before the output is opened and anything is
    submitted. With `waits` results are written, else ids, or with `whole_handles` handles.
    """

    def __init__(
        self,
        *,
        source: BinaryIO,
        open_output: Callable[[], BinaryIO],
        deadline: str,
        checkable: bool,
        waits: bool,
        whole_handles: bool,
    ) -> None:
        self._source = source
        self._open_output = open_output
        self._deadline = deadline
        self._checkable = checkable
        self.waits = waits
        self._whole_handles = whole_handles
        self._line: Line | None = None
        self._tally = Tally()

    async def run(self, producer: AnyProducer) -> Tally:
        """Submit everything, and wait for the results if that is asked for.

        Raises:
            BadLine: a line cannot be submitted.
            ConfigurationError: there is nothing to submit.
            BrokerUnavailable, BrokerRefused: from the broker.
        """
        total = self._check(producer) if self._checkable else None
        self._output = self._open_output()
        async with progress_bar("results" if self.waits else "requests", total) as bar:
            try:
                fault = await self._submit(producer, bar)
            except ExceptionGroup as failures:  # of waits that ran side by side; one says it all
                raise failures.exceptions[0] from None
        if fault is not None:
            raise fault
        if not self._tally.submitted:
            raise ConfigurationError([Problem(path="input", message="holds no request")])
        return self._tally

    def _check(self, producer: AnyProducer) -> int:
        """How many requests there are, if every one of them can be submitted."""
        count = 0
        try:
            for submission in self._submissions():
                producer.check(submission)
                count += 1
        except InvalidSubmission as error:
            raise self._bad_line(error) from None
        except BadLine as error:
            raise self._after(error) from None
        self._source.seek(0)
        return count

    async def _submit(self, producer: AnyProducer, bar: Bar) -> BadLine | None:
        """Ends when all results are there; a bad line ends the submitting alone."""
        slots = asyncio.Semaphore(_OUTSTANDING)
        async with asyncio.TaskGroup() as waits:
            try:
                async for handle in producer.submit_each(self._submissions(), mailbox=self.waits):
                    self._tally.submitted += 1
                    if self.waits:
                        await slots.acquire()
                        waits.create_task(self._collect(producer, handle, slots, bar))
                    else:
                        self._announce(handle)
                        bar.advance()
            except InvalidSubmission as error:
                return self._bad_line(error)
            except BadLine as error:
                return self._after(error)
        return None

    def _submissions(self) -> Iterator[Submission]:
        for line in read_lines(self._source, self._deadline):
            self._line = line
            yield line.submission

    async def _collect(
        self, producer: AnyProducer, handle: Handle, slots: asyncio.Semaphore, bar: Bar
    ) -> None:
        left = handle.deadline - producer.now() + _GRACE_S
        try:
            taken = await producer.take(handle, timeout=max(_GRACE_S, left))
        except TimeoutError:
            self._tally.missing += 1
        else:
            write(taken, self._output)
            await taken.ack()
            self._tally.count(taken)
        finally:
            slots.release()
        bar.advance()

    def _announce(self, handle: Handle) -> None:
        name = msgspec.json.encode(handle) if self._whole_handles else handle.id.encode()
        self._output.write(name + b"\n")
        self._output.flush()

    def _bad_line(self, error: InvalidSubmission) -> BadLine:
        number = self._line.number if self._line else 0
        return self._after(BadLine(number, str(error)))

    def _after(self, error: BadLine) -> BadLine:
        before = self._tally.submitted
        state = f"submitted before it: {before}" if before else "nothing was submitted"
        return BadLine(error.number, f"{error.reason} ({state})")


def summarise(tally: Tally, queue: str, *, waited: bool) -> None:
    """One line on standard error."""
    line = f"submitted {tally.submitted} to {queue}"
    if waited:
        line += f", {tally.succeeded} succeeded, {tally.failed} failed"
    if tally.missing:
        line += f", {tally.missing} without a result: async-processor status says why"
    typer.echo(line, err=True)
