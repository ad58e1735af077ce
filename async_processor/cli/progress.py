"""A progress bar for people; silent where standard error is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Bar(Protocol):
    """Counts what is done."""

    def advance(self) -> None:
        """One more is done."""
        ...


class _Silence:
    def advance(self) -> None:
        """Nobody looks."""


@contextmanager
def progress_bar(what: str, total: int | None) -> Iterator[Bar]:
    """A bar that counts up to `total`, or without an end where that is None."""
    if not sys.stderr.isatty():
        yield _Silence()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)

        class Shown:
            def advance(self) -> None:
                progress.advance(task)

        yield Shown()
