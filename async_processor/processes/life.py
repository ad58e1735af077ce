"""The life of one process, as the supervisor sees it."""

from __future__ import annotations

import asyncio
import random
import signal
import socket
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from async_processor.errors import AsyncProcessorError, ConfigurationError, Problem
from async_processor.processes.line import Line, LineEnded
from async_processor.processes.orders import Begun, Failure, Orders
from async_processor.telemetry.logs import get_logger
from async_processor.telemetry.pages import Page

PAGE_INTERVAL: Final = 10.0
"""Seconds between two looks at what a process has counted; what it counts after the last one is
lost when it is killed."""

SILENCE: Final = 30.0
"""Seconds without an answer after which a process counts as hung, and is killed."""

ANSWER_SECONDS: Final = 3.5
"""For an answer that somebody waits for; a process itself waits 3 s for the broker's, and a probe
perhaps 4 s for ours."""

_FOLLOWING_SECONDS: Final = SILENCE + 2 * PAGE_INTERVAL
"""Longer than anybody hangs: no change of the settings fails for one who is soon replaced."""

_log = get_logger(__name__)


class Lifeless(AsyncProcessorError):
    """A process could not be born or hung; the next one may do better."""


class Life:
    """Of a process that is run by `command`, behind which its end of the line is named."""

    def __init__(self, command: Sequence[str], orders: Orders, started: Callable[[], None]) -> None:
        self._command = command
        self._orders = orders
        self._started = started
        self._process: asyncio.subprocess.Process | None = None
        self._line: Line | None = None
        self._asked = False
        """Whether it was told to begin: before, it can have taken nothing."""
        self._unwanted = False
        self._born_at = time.monotonic()
        self._telling: set[asyncio.Task[None]] = set()
        self.begun: Begun | None = None
        """What it is; None before it is anything."""
        self.running = False
        """Whether its start is over."""
        self.page: Page = ()
        """What it showed last."""
        self.settings = orders.settings
        """Those that it goes by."""
        self.failure: AsyncProcessorError | None = None
        """Why it ended, if it said so; Lifeless if it could say nothing."""

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    async def run(self) -> int:
        """From the birth to the end; returns the exit code, of a signal its negative number."""
        try:
            self._process, own_end = await self._born()
        except OSError as error:  # no memory, no process or no file is left to be had
            self.failure = Lifeless(f"a process cannot be started: {error}")
            return 1
        self._line = Line(own_end, {"running": self._heard_running, "failed": self._heard_failure})
        await self._line.open()
        return await self._live(self._process, self._line)

    async def _born(self) -> tuple[asyncio.subprocess.Process, socket.socket]:
        own_end, its_end = socket.socketpair()
        try:
            process = await asyncio.create_subprocess_exec(
                *(*self._command, str(its_end.fileno())),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=[its_end.fileno()],
                start_new_session=True,  # what a terminal sends is for the supervisor alone
            )
        except BaseException:
            own_end.close()
            raise
        finally:
            its_end.close()
        return process, own_end

    async def _live(self, process: asyncio.subprocess.Process, line: Line) -> int:
        hearing, *others = [asyncio.create_task(work) for work in self._work(line)]
        try:
            code = await process.wait()
            # What it said last may still be on the line, also who it was.
            await asyncio.wait([hearing], timeout=ANSWER_SECONDS)
            return 0 if self._unwanted and not self._asked else code
        finally:
            self.kill()
            for task in (hearing, *others):
                task.cancel()
            await asyncio.gather(hearing, *others, return_exceptions=True)

    def _work(self, line: Line) -> Sequence[Coroutine[Any, Any, None]]:
        return line.run(), self._begin(line), self._watch()

    def end(self, reason: str) -> None:
        """Let it drain, or, asked a second time, give everything back."""
        self._unwanted = True
        if not self._asked:
            self.kill()
            return
        task = asyncio.get_running_loop().create_task(self._tell_end(reason))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    def kill(self) -> None:
        """End it without delay."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def ask(self, name: str, content: Any = None, *, within: float = ANSWER_SECONDS) -> Any:
        """Raises as `Line.ask`, LineEnded also before it can answer anything."""
        if self._line is None or self.begun is None:
            raise LineEnded
        return await self._line.ask(name, content, within=within)

    async def fault(self) -> str:
        """Why it is not ready; empty when it is."""
        try:
            return str(await self.ask("fault"))
        except LineEnded:
            return f"it has been starting for {time.monotonic() - self._born_at:.0f} s"
        except TimeoutError:
            return "it does not answer"

    async def look(self, *, within: float = ANSWER_SECONDS) -> None:
        """Bring `page` up to date; raises TimeoutError when it does not answer."""
        with suppress(AsyncProcessorError):
            page = await self.ask("page", within=within)
            self.page = msgspec.msgpack.decode(page, type=Page)

    async def _begin(self, line: Line) -> None:
        if self._unwanted:
            self.kill()
            return
        self._asked = True
        patience = coming_up(self._orders.processes)
        try:
            answer = await line.ask("begin", self._orders, within=patience)
            self.begun = msgspec.convert(answer, Begun)
        except TimeoutError:
            self._give_up(f"did not come up within {patience:g} s")
        except AsyncProcessorError:
            pass  # it says why it cannot, and ends

    async def _watch(self) -> None:
        """Keep the page, and see whether anybody is still there."""
        while True:
            await asyncio.sleep(PAGE_INTERVAL * random.uniform(0.9, 1.1))
            try:
                await self.look(within=SILENCE)
            except TimeoutError:
                self._give_up(f"gave no sign for {SILENCE:g} s")

    def _give_up(self, fault: str) -> None:
        _log.error("process_hangs", process=self._orders.rank + 1, pid=self.pid, error=fault)
        self.failure = Lifeless(f"a process {fault}, and was killed")
        self.kill()

    async def _tell_end(self, reason: str) -> None:
        if self._line is not None:
            with suppress(AsyncProcessorError, TimeoutError):
                await self._line.ask("end", reason, within=ANSWER_SECONDS)

    async def _heard_running(self, _: None) -> None:
        self.running = True
        self._started()

    async def _heard_failure(self, content: Any) -> None:
        failure = msgspec.convert(content, Failure)
        problems = [Problem(path=path, message=message) for path, message in failure.problems]
        self.failure = (
            ConfigurationError(problems) if problems else AsyncProcessorError(failure.message)
        )


def coming_up(processes: int) -> float:
    """Seconds from its birth after which one of so many that has not answered yet counts as hung.

    Until then it imports and builds its parts, perhaps all of them on a single core, and needs
    nobody: for the broker it waits afterwards.
    """
    return 60.0 + 3.0 * processes


async def follow(life: Life, settings: str) -> str:
    """Have it go by other settings; returns why it does not, empty when it does or has ended."""
    try:
        await life.ask("take over", settings, within=_FOLLOWING_SECONDS)
    except LineEnded:
        return ""
    except TimeoutError:
        return "a process does not answer"
    except AsyncProcessorError as error:
        return str(error)
    life.settings = settings
    return ""


def ending(code: int) -> str:
    """An exit code in words."""
    return f"ended with {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"
