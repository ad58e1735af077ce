"""`async-processor status`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
import typer

from async_processor.cli import broker, loop, status_words
from async_processor.redis_io.queue_report import QueueReport, read_report

_DAEMON_SECONDS: Final = 3.0
_PLAIN_WIDTH: Final = 160
_TITLES: Final = (
    *("waiting", "parked", "leased", "in flight"),
    *("retries due", "oldest deadline", "dead letters"),
)


def status(
    config: broker.ConfigOption = None,
    url: broker.UrlOption = "",
    queue: broker.QueueOption = "",
    daemon: Annotated[
        str, typer.Option("--daemon", help="A daemon's health port, e.g. http://localhost:8081.")
    ] = "",
    as_json: broker.JsonOption = False,
) -> None:
    """Show how the queues stand, and say why nothing moves when nothing moves.

    Leased is what any daemon holds; in flight is what the asked daemon has sent and waits for.
    The broker is read; with --daemon, or where the configuration says where it listens, a daemon
    is asked for its gates as well. Retries and dead letters are those of all queues.

    Example: async-processor status --daemon http://localhost:8081
    """
    where = broker.target(config, url, queue)
    reports = loop.run(_read(where))
    asked = daemon or where.daemon
    heard = _ask(asked, where.bearer_token)
    document = _document(reports, heard, silent="" if heard else asked)
    if as_json:
        typer.echo(msgspec.json.encode(document))
    else:
        _show(reports, document)


async def _read(where: broker.Target) -> list[QueueReport]:
    connection = where.connection()
    await connection.open()
    try:
        return [
            await read_report(
                connection.client,
                name,
                retry_queue=where.retry_queue,
                dead_letter_queue=where.dead_letter_queue,
            )
            for name in where.queues
        ]
    finally:
        await connection.close()


def _ask(daemon: str, bearer_token: str) -> Mapping[str, Any] | None:
    """The daemon's own /status; None where none answers."""
    if not daemon:
        return None
    import httpx

    headers = {"Authorization": f"Bearer {bearer_token}"} if bearer_token else {}
    try:
        answer = httpx.get(f"{daemon.rstrip('/')}/status", headers=headers, timeout=_DAEMON_SECONDS)
        answer.raise_for_status()
        return msgspec.json.decode(answer.content, type=dict[str, Any])
    except (httpx.HTTPError, httpx.InvalidURL, msgspec.MsgspecError):
        return None


def _document(
    reports: Sequence[QueueReport], heard: Mapping[str, Any] | None, *, silent: str
) -> Mapping[str, Any]:
    """The shape of the daemon's /status; null is what only a daemon could say."""
    return {
        "ready": heard and heard["ready"],
        "queues": [_queue(one, _of(heard, one.queue_name), silent) for one in reports],
        "pools": heard["pools"] if heard else [],
    }


def _queue(report: QueueReport, told: Mapping[str, Any] | None, silent: str) -> Mapping[str, Any]:
    return {
        "queue_id": told["queue_id"] if told else report.queue_name,
        "queue_name": report.queue_name,
        "pool_name": told and told["pool_name"],
        "backlog": report.waiting,
        "parked": report.parked,
        "leased": report.leased,
        "inflight": told and told["inflight"],
        "retries_due": report.retries_due,
        "oldest_deadline": report.oldest_deadline,
        "dead_letters": report.dead_letters,
        "gate": told and told["gate"],
        "why": status_words.why(report, told, silent=silent),
        "retries": report.retries,
        "expired": report.expired,
        "warnings": list(status_words.warnings(report)),
    }


def _of(heard: Mapping[str, Any] | None, queue_name: str) -> Mapping[str, Any] | None:
    queues = heard["queues"] if heard else ()
    return next((queue for queue in queues if queue["queue_name"] == queue_name), None)


def _show(reports: Sequence[QueueReport], document: Mapping[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    table.add_column("queue", no_wrap=True)
    for title in _TITLES:
        table.add_column(title, justify="right", no_wrap=True)
    for report, queue in zip(reports, document["queues"], strict=True):
        table.add_row(
            report.queue_name,
            str(report.waiting),
            str(report.parked),
            str(report.leased),
            "-" if queue["inflight"] is None else str(queue["inflight"]),
            f"{report.retries_due} of {report.retries}",
            _deadline(report),
            str(report.dead_letters),
        )
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _PLAIN_WIDTH)
    console.print(table)
    for queue in document["queues"]:
        for sentence in filter(None, (queue["why"], *queue["warnings"])):
            console.print(f"{queue['queue_name']}: {sentence}", soft_wrap=True, markup=False)


def _deadline(report: QueueReport) -> str:
    if report.oldest_deadline is None:
        return "-"
    left = report.oldest_deadline - report.now
    return f"in {status_words.span(left)}" if left > 0 else f"{status_words.span(-left)} ago"
