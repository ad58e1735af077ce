"""Shows on standard error how far a command is: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NoReturn, Protocol

import typer

INTERVAL: Final = 10.0
"""Seconds between two lines; a command that is done before the first says none."""


class Bar(Protocol):
    """Counts what is done."""

    def advance(self) -> None:
        """One more is done."""
        ...


class _Count:
    """What is done, for whoever reads a log."""

    def __init__(self, what: str, total: int | None) -> None:
        self._what = what
        self._of_all = "" if total is None else f" of {total}"
        self._done = 0

    def advance(self) -> None:
        """One more is done."""
        self._done += 1

    async def tell(self, interval: float) -> NoReturn:
        """Say how far it is, until cancelled, also when nothing has come meanwhile."""
        while True:
            await asyncio.sleep(interval)
            typer.echo(f"{self._what}: {self._done}{self._of_all}", err=True)


@asynccontextmanager
async def progress_bar(
    what: str, total: int | None, *, interval: float = INTERVAL
) -> AsyncIterator[Bar]:
    """Counts up to `total`, or without an end where that is None."""
    if sys.stderr.isatty():
        async with _drawn(what, total) as bar:
            yield bar
        return
    count = _Count(what, total)
    telling = asyncio.create_task(count.tell(interval), name="progress")
    try:
        yield count
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)


@asynccontextmanager
async def _drawn(what: str, total: int | None) -> AsyncIterator[Bar]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)

        class Shown:
            def advance(self) -> None:
                progress.advance(task)

        yield Shown()
