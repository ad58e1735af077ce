"""`async-processor gate watch`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from async_processor.cli import loop

if TYPE_CHECKING:
    from async_processor.config.settings import Settings
    from async_processor.daemon.gate_watch import Watched

app = typer.Typer(add_completion=False)

_COLUMNS: Final = ("gate of", "type", "value", "threshold", "budget", "age", "why")


@app.callback()
def _gate() -> None:
    """See what the configured gates read and allow.

    Example: async-processor gate watch --config config.yaml
    """


@app.command()
def watch(
    config: Annotated[Path, typer.Option(help="The daemon's configuration.")],
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 1.0,
    count: Annotated[int, typer.Option(min=0, help="Stop after so many; 0: never.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines.")] = False,
) -> None:
    """Evaluate the configured gates against their real sources, without consuming anything.

    The value is what a gate reads, as room: it is closed while that is not above the threshold.

    Example: async-processor gate watch --config config.yaml
    """
    from async_processor.config.load import load
    from async_processor.telemetry import logs

    logs.configure(level="warning")
    settings = load(config, os.environ)
    loop.run(_watch(settings, interval, count, as_json=as_json))


async def _watch(settings: Settings, interval: float, count: int, *, as_json: bool) -> None:
    from async_processor.daemon import gate_watch

    looks = 0
    async with aclosing(gate_watch.watch(settings, interval)) as states:
        async for watched in states:
            typer.echo(msgspec.json.encode(watched) if as_json else _lines(watched))
            looks += 1
            if looks == count:
                return


def _lines(watched: Sequence[Watched]) -> str:
    """A table of constant widths, so that looks stand below each other."""
    rows = [_COLUMNS, *(_row(each) for each in watched)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _row(watched: Watched) -> tuple[str, ...]:
    state = watched.state
    why = state.reason or ("" if state.budget > 0 else "closed")
    return (
        watched.place,
        state.type,
        _number(state.value),
        _number(state.threshold),
        _number(state.budget),
        "-" if state.age is None else f"{state.age:.1f} s",
        why if state.available else f"source unavailable: {why}",
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
