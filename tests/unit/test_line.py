"""The line between the supervisor and a process: questions both ways, several at once, and its end
is heard at once."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from async_processor.errors import AsyncProcessorError
from async_processor.processes.line import Answers, Line, LineEnded, Refused
from async_processor.testing.eventually import until


class Ends:
    def __init__(self, here: Line, there: Line, runs: list[asyncio.Task[None]]) -> None:
        self.here, self.there, self.runs = here, there, runs


@asynccontextmanager
async def connected(*, here: Answers = {}, there: Answers = {}) -> AsyncIterator[Ends]:  # noqa: B006
    ours, theirs = socket.socketpair()
    lines = Line(ours, here), Line(theirs, there)
    for line in lines:
        await line.open()
    runs = [asyncio.create_task(line.run()) for line in lines]
    yield Ends(*lines, runs)
    for run in runs:
        run.cancel()
    await asyncio.gather(*runs, return_exceptions=True)


async def echo(content: Any) -> Any:
    return content


async def never(_: Any) -> None:
    await asyncio.Event().wait()


async def cannot(_: Any) -> None:
    raise AsyncProcessorError("not today")


async def broken(_: Any) -> None:
    raise ZeroDivisionError


async def test_both_sides_ask() -> None:
    async with connected(here={"echo": echo}, there={"echo": echo}) as ends:
        assert await ends.here.ask("echo", {"a": [1, None, "x"]}) == {"a": [1, None, "x"]}
        assert await ends.there.ask("echo", b"y" * 3_000_000) == b"y" * 3_000_000


async def test_a_slow_answer_holds_up_no_other() -> None:
    async with connected(there={"echo": echo, "never": never}) as ends:
        waits = asyncio.create_task(ends.here.ask("never"))
        assert await ends.here.ask("echo", 1) == 1
        with pytest.raises(TimeoutError):
            await ends.here.ask("never", within=0.01)
        waits.cancel()


async def test_a_refusal_says_why() -> None:
    async with connected(there={"cannot": cannot, "broken": broken}) as ends:
        with pytest.raises(Refused, match="not today"):
            await ends.here.ask("cannot")
        for name in ("broken", "unknown"):
            with pytest.raises(Refused):
                await ends.here.ask(name)


async def test_more_can_be_answered_later() -> None:
    async with connected() as ends:
        ends.there.answer({"echo": echo})
        assert await ends.here.ask("echo", 1) == 1


async def test_who_asks_hears_at_once_that_the_other_is_gone() -> None:
    async with connected(there={"never": never}) as ends:
        waits = asyncio.create_task(ends.here.ask("never"))
        await asyncio.sleep(0)
        ends.runs[1].cancel()
        with pytest.raises(LineEnded):
            await waits
        await ends.runs[0]
        with pytest.raises(LineEnded):
            await ends.here.ask("never")


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_question_asked_just_after_the_end_hears_of_it(run: Callable[..., None]) -> None:
    """The supervisor may ask before it has read that a process was killed with questions unread;
    uvloop, on which both run, lets nobody write then."""

    async def asks() -> None:
        ours, theirs = socket.socketpair()
        line = Line(ours, {})
        await line.open()
        before = asyncio.create_task(line.ask("unread"))
        await asyncio.sleep(0)
        theirs.close()
        assert line._reader is not None
        reader = line._reader
        await until(lambda: reader.exception() is not None)
        after = asyncio.create_task(line.ask("too late"))
        await asyncio.sleep(0)
        await line.run()
        for question in (before, after):
            with pytest.raises(LineEnded):
                await question

    run(asks())
