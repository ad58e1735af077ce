"""`async-processor demo`: watch the daemon fill a pool's pauses and leave its users alone."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from async_processor.cli import loop
from async_processor.errors import AsyncProcessorError
from async_processor.sim.demo import TENANTS, Demo, Snapshot, Summary

TIME_LIMIT: Final = 55.0
_REFRESH: Final = 0.25
_PLAIN_REFRESH: Final = 5.0


def demo(
    requests: Annotated[int, typer.Option(min=1, help="How many requests to submit.")] = 300,
    gate: Annotated[
        bool, typer.Option("--gate/--no-gate", help="Without: send as much as the workers can.")
    ] = True,
    seed: Annotated[int, typer.Option(help="Makes the load repeatable.")] = 7,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Watch the whole thing work on a simulated pool; it ends by itself within a minute.

    Compare with --no-gate, and look at how long the live users wait.

    Example: async-processor demo --no-gate
    """
    summary = loop.run(_play(requests=requests, gate=gate, seed=seed, quiet=as_json))
    if as_json:
        typer.echo(msgspec.json.encode(summary))
    else:
        _print(summary, gate=gate)
    if not summary.accounted_for:
        raise AsyncProcessorError(
            f"{summary.missing} requests without a result, {summary.doubled} with two; "
            f"the daemon ended with {summary.daemon_exit}"
        )


async def _play(*, requests: int, gate: bool, seed: int, quiet: bool) -> Summary:
    console = Console(stderr=True, quiet=quiet)
    console.print("Starting a broker, a pool of two simulated vLLM pods, its users, the daemon …")
    async with Demo(requests=requests, gate=gate, seed=seed) as running:
        broken = asyncio.ensure_future(running.failure())
        show = _watch_live if sys.stderr.isatty() else _watch_plainly
        watching = asyncio.ensure_future(show(running, console))
        await asyncio.wait(
            (broken, watching), timeout=TIME_LIMIT, return_when=asyncio.FIRST_COMPLETED
        )
        watching.cancel()
        if broken.done():
            raise broken.result()
        broken.cancel()
        return await running.finish()


async def _watch_live(running: Demo, console: Console) -> None:
    with Live(console=console, refresh_per_second=8, transient=True) as live:
        while not running.finished:
            live.update(_screen(await running.snapshot()))
            await asyncio.sleep(_REFRESH)


async def _watch_plainly(running: Demo, console: Console) -> None:
    """For logs: a line now and then."""
    since = _PLAIN_REFRESH
    while not running.finished:
        if since >= _PLAIN_REFRESH:
            console.print(_line(await running.snapshot()), soft_wrap=True)
            since = 0.0
        await asyncio.sleep(_REFRESH)
        since += _REFRESH


def _line(now: Snapshot) -> str:
    budget = "-" if now.budget is None else f"{now.budget:.2f}"
    return (
        f"results {sum(now.results.values())}/{now.submitted}  waiting {_number(now.backlog)}  "
        f"in flight {_number(now.inflight)}  KV {_percents(now.kv_use)}  budget {budget}  "
        f"users' first token p95 {_seconds(now.users.first_token_p95)}"
    )


def _screen(now: Snapshot) -> Panel:
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="bold")
    rows.add_column()
    done = sum(now.results.values())
    rows.add_row("results", _bar(done, now.submitted, f"{done} of {now.submitted}"))
    for tenant in TENANTS:
        share = max(1, now.submitted // len(TENANTS))
        count = now.results.get(tenant, 0)
        rows.add_row(f"  {tenant}", _bar(count, share, str(count)))
    rows.add_row("waiting in the queue", _number(now.backlog))
    rows.add_row("in flight", _number(now.inflight))
    for index, (use, waiting) in enumerate(zip(now.kv_use, now.waiting, strict=True)):
        rows.add_row(f"KV cache of pod {index}", _bar(use, 1, f"{use:.0%}, {waiting} waiting"))
    if now.budget is not None:
        rows.add_row("the gate's budget", _bar(now.budget, 1, f"{now.budget:.2f}"))
    rows.add_row("live users' first token", _waits(now))
    if now.why:
        rows.add_row("nothing moves because", Text(now.why, style="yellow"))
    return Panel(rows, title="async-processor demo", border_style="cyan")


def _bar(value: float, total: float, caption: str) -> Group | Table:
    row = Table.grid(padding=(0, 1))
    row.add_row(ProgressBar(total=max(total, 1e-9), completed=value, width=30), caption)
    return row


def _waits(now: Snapshot) -> str:
    users = now.users
    return (
        f"p50 {_seconds(users.first_token_p50)}, p95 {_seconds(users.first_token_p95)} "
        f"({users.requests} lately, {users.failures} failed)"
    )


def _print(summary: Summary, *, gate: bool) -> None:
    console = Console()
    how = "with the gate" if gate else "without a gate"
    console.print(f"\n[bold]{summary.submitted} requests in {summary.took:.0f} s, {how}[/bold]")
    console.print(_table(summary))
    users = summary.users
    console.print(f"without a result: {summary.missing}, with two: {summary.doubled}")
    console.print(
        f"live users: {users.requests} chats, {users.failures} failed, first token "
        f"p50 {_seconds(users.first_token_p50)}, p95 {_seconds(users.first_token_p95)}",
        soft_wrap=True,
    )


def _table(summary: Summary) -> Table:
    endings = sorted({ending for counts in summary.results.values() for ending in counts})
    table = Table("tenant")
    for ending in endings:
        table.add_column(ending, justify="right")
    for tenant, counts in summary.results.items():
        table.add_row(tenant, *(str(counts.get(ending, 0)) for ending in endings))
    return table


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _percents(shares: Sequence[float]) -> str:
    return "/".join(f"{share:.0%}" for share in shares)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value * 1000:.0f} ms"
