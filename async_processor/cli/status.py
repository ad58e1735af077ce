"""`async-processor status`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
import typer

from async_processor.cli import broker, loop, status_words
from async_processor.cli.daemon_status import Asked, ToldQueue, ask
from async_processor.cli.pubsub_target import PubSubTarget
from async_processor.errors import ConfigurationError, Problem
from async_processor.redis_io.queue_report import QueueReport, read_report

_PLAIN_WIDTH: Final = 160
_TITLES: Final = ("waiting", "parked", "leased", "in flight", "oldest deadline")


def status(
    config: broker.ConfigOption = None,
    url: broker.UrlOption = "",
    queue: broker.QueueOption = "",
    daemon: Annotated[
        str, typer.Option("--daemon", help="A daemon's health port, e.g. http://localhost:8081.")
    ] = "",
    token: Annotated[
        str,
        typer.Option(
            "--token", help="The daemon's server.bearer_token; default: that of --config."
        ),
    ] = "",
    as_json: broker.JsonOption = False,
) -> None:
    """Show how the queues stand, and say why nothing moves when nothing moves.

    Leased is what any daemon holds; in flight is what the asked daemon has sent and waits for.
    The broker is read; with --daemon, or where the configuration says where it listens, a daemon
    is asked for its gates as well, and without --config or --queue for its queues. Retries and
    dead letters are those of all queues.

    Example: async-processor status --daemon http://localhost:8081
    """
    where = broker.any_target(config, url, queue)
    asked = ask(daemon or where.daemon, token or where.bearer_token)
    if isinstance(where, PubSubTarget):
        _show_told(asked, as_json=as_json)
        return
    if asked.told and asked.told.queues and not (config or queue):
        where = msgspec.structs.replace(
            where, queues=tuple(told.queue_name for told in asked.told.queues)
        )
    reports = loop.run(_read(where))
    document = _document(reports, asked)
    if as_json:
        typer.echo(msgspec.json.encode(document))
    else:
        _show(reports, document)


def _show_told(asked: Asked, *, as_json: bool) -> None:
    """Pub/Sub cannot be looked into from here; what its backlog is, the daemon asks for."""
    if asked.told is None:
        fault = asked.fault or "ask a daemon with --daemon URL"
        raise ConfigurationError(
            [Problem(path="status", message=f"Pub/Sub itself does not tell: {fault}")]
        )
    if as_json:
        typer.echo(msgspec.json.encode(asked.told))
        return
    for queue in asked.told.queues:
        backlog = "unknown" if queue.backlog is None else str(queue.backlog)
        line = f"{queue.queue_name}: backlog {backlog}, in flight {queue.inflight or 0}"
        typer.echo(f"{line}; {queue.why}" if queue.why else line)


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


def _document(reports: Sequence[QueueReport], asked: Asked) -> Mapping[str, Any]:
    """The shape of the daemon's /status; null is what only a daemon could say."""
    return {
        "ready": asked.told and asked.told.ready,
        "queues": [_queue(one, asked.queue(one.queue_name), asked.silent) for one in reports],
        "pools": asked.told.pools if asked.told else [],
        "processes": asked.told.processes if asked.told else [],
        "notes": list(status_words.notes(reports, asked)),
    }


def _queue(report: QueueReport, told: ToldQueue | None, silent: str) -> Mapping[str, Any]:
    return {
        "queue_id": told.queue_id if told else report.queue_name,
        "queue_name": report.queue_name,
        "pool_name": told and told.pool_name,
        "backlog": report.waiting,
        "parked": report.parked,
        "leased": report.leased,
        "inflight": told and told.inflight,
        "retries_due": report.retries_due,
        "oldest_deadline": report.oldest_deadline,
        "dead_letters": report.dead_letters + report.stranded,
        "gate": told and told.gate,
        "why": status_words.why(report, told, silent=silent),
        "retries": report.retries,
        "expired": report.expired,
        "warnings": list(status_words.warnings(report)),
    }


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
            _deadline(report),
        )
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _PLAIN_WIDTH)
    console.print(table)
    sentences = [
        f"{queue['queue_name']}: {sentence}"
        for queue in document["queues"]
        for sentence in filter(None, (queue["why"], *queue["warnings"]))
    ]
    for sentence in (*sentences, *document["notes"]):
        console.print(sentence, soft_wrap=True, markup=False)


def _deadline(report: QueueReport) -> str:
    if report.oldest_deadline is None:
        return "-"
    left = report.oldest_deadline - report.now
    return f"in {status_words.span(left)}" if left > 0 else f"{status_words.span(-left)} ago"
