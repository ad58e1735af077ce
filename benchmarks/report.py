"""What a benchmark found: a table for people, and the same as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version

import msgspec
from rich.console import Console
from rich.table import Table

Cell = str | int | float | None
_LIBRARIES = ("aiohttp", "redis", "uvloop")


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One benchmark's figures; the rows have the columns' names as keys. `aims` are in words."""

    name: str
    title: str
    rows: Sequence[Mapping[str, Cell]]
    aims: str = ""


def machine(broker: str) -> Mapping[str, str]:
    """What was measured on."""
    libraries = ", ".join(f"{name} {version(name)}" for name in _LIBRARIES)
    return {
        "cores": str(os.cpu_count()),
        "load before": f"{os.getloadavg()[0]:.1f}",
        "broker": broker,
        "python": platform.python_version(),
        "libraries": libraries,
    }


def show(report: Report, console: Console) -> None:
    """Print a report as a table."""
    table = Table(title=report.title, caption=report.aims or None, title_justify="left")
    for column in report.rows[0]:
        table.add_column(column, justify="left" if column == "what" else "right")
    for row in report.rows:
        table.add_row(*(_text(cell) for cell in row.values()))
    console.print(table)


def _text(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 100 else f"{cell:.3g}"
    return f"{cell:,}" if isinstance(cell, int) else cell
