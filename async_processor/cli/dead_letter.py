"""`async-processor dead-letter list|show|requeue|purge`."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec
import typer

from async_processor.cli import broker, loop
from async_processor.errors import ConfigurationError, Problem
from async_processor.producer.dead_letters import DeadLetters, Letter
from async_processor.producer.deadline import unix_since
from async_processor.producer.errors import DeadlinePassed, InvalidSubmission
from async_processor.wire.envelope import InvalidMessage

app = typer.Typer(
    add_completion=False,
    help="""List, show, requeue and purge dead letters.

    Example: async-processor dead-letter list
    """,
)

IdsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[ID]...", help="Ids of requests.")
]
QueueFilter = Annotated[str, typer.Option("--queue", help="Only those of this request queue.")]
ReasonFilter = Annotated[str, typer.Option("--reason", help="Only those whose reason has this.")]
SinceFilter = Annotated[
    str,
    typer.Option(
        "--since", help="Only those buried since: a duration back, Unix seconds or ISO 8601."
    ),
]
AllOption = Annotated[bool, typer.Option("--all", help="Every dead letter.")]


_TITLES: Final = "buried at (UTC)\tid\tqueue\treason"


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Which letters are meant; what is empty says nothing. `since` is in Unix seconds."""

    ids: tuple[str, ...] = ()
    queue: str = ""
    reason: str = ""
    since: float = 0.0

    def __contains__(self, letter: Letter) -> bool:
        queue = letter.content.queue_name if letter.content else ""
        reason = letter.content.reason if letter.content else ""
        buried_at = letter.content.buried_at if letter.content else 0.0
        return (
            (not self.ids or letter.id in self.ids)
            and self.queue in ("", queue)
            and self.reason.lower() in reason.lower()
            and self.since <= buried_at
        )


@app.command("list")
def list_letters(
    ids: IdsArgument = None,
    config: broker.ConfigOption = None,
    url: broker.UrlOption = "",
    queue: QueueFilter = "",
    reason: ReasonFilter = "",
    since: SinceFilter = "",
    as_json: broker.JsonOption = False,
) -> None:
    """List dead letters, the oldest first, without their messages.

    Example: async-processor dead-letter list --reason deliveries --since 1h
    """
    chosen = _choice(ids, queue, reason, since, everything=True)

    async def show(letters: DeadLetters) -> None:
        listed = 0
        async for letter in letters.each():
            if letter in chosen:
                if not as_json and not listed:
                    typer.echo(_TITLES)
                typer.echo(msgspec.json.encode(_facts(letter)) if as_json else _row(letter))
                listed += 1

    _with_letters(config, url, show)


@app.command("show")
def show_letters(
    ids: IdsArgument = None,
    config: broker.ConfigOption = None,
    url: broker.UrlOption = "",
    queue: QueueFilter = "",
    reason: ReasonFilter = "",
    since: SinceFilter = "",
    everything: AllOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON; the only form.")] = True,
) -> None:
    """Print dead letters whole, as JSON lines: the reason and the message as it came.

    Those without an id are found by --reason or --queue.

    Example: async-processor dead-letter show --reason JSON
    """
    del as_json
    chosen = _choice(ids, queue, reason, since, everything=everything)

    async def show(letters: DeadLetters) -> None:
        shown = 0
        async for letter in letters.each():
            if letter in chosen:
                typer.echo(letter.raw)
                shown += 1
        _require(shown, "no dead letter matches; dead-letter list shows them")

    _with_letters(config, url, show)


@app.command("requeue")
def requeue(
    ids: IdsArgument = None,
    config: broker.ConfigOption = None,
    url: broker.UrlOption = "",
    queue: QueueFilter = "",
    reason: ReasonFilter = "",
    since: SinceFilter = "",
    everything: AllOption = False,
    deadline: Annotated[
        str, typer.Option(help="A new deadline: a duration, Unix seconds or ISO 8601.")
    ] = "",
) -> None:
    """Move dead letters back into their queues, each in one step: none is lost, none is doubled.

    Without --deadline they keep their own. Exit code 1 where one could not be moved.

    Example: async-processor dead-letter requeue --all --deadline 1h
    """
    chosen = _choice(ids, queue, reason, since, everything=everything)
    faults: list[str] = []

    async def move(letters: DeadLetters) -> None:
        async def act(letter: Letter) -> bool:
            try:
                return letter in chosen and await letters.requeue(letter, deadline or None)
            except DeadlinePassed as error:
                faults.append(f"{letter.id}: {error}; give it a new one with --deadline")
            except InvalidSubmission as error:
                faults.append(f"{letter.id or 'a message without an id'}: {error}")
            return False

        moved = await _sweep(letters, act)
        typer.echo(f"requeued {moved}", err=True)
        for fault in faults:
            typer.echo(f"async-processor: {fault}", err=True)
        _require(moved if not faults else 0, "" if faults else "no dead letter matches")

    _with_letters(config, url, move)


@app.command("purge")
def purge(
    ids: IdsArgument = None,
    config: broker.ConfigOption = None,
    url: broker.UrlOption = "",
    queue: QueueFilter = "",
    reason: ReasonFilter = "",
    since: SinceFilter = "",
    everything: AllOption = False,
) -> None:
    """Delete dead letters for good.

    Example: async-processor dead-letter purge --queue request-sortedset --reason JSON
    """
    chosen = _choice(ids, queue, reason, since, everything=everything)

    async def delete(letters: DeadLetters) -> None:
        async def act(letter: Letter) -> bool:
            return letter in chosen and await letters.purge(letter)

        purged = await _sweep(letters, act)
        typer.echo(f"purged {purged}", err=True)
        _require(purged, "no dead letter matches")

    _with_letters(config, url, delete)


async def _sweep(letters: DeadLetters, act: Callable[[Letter], Awaitable[bool]]) -> int:
    """Act on every letter; returns how many are gone."""
    gone = 0

    async def counted(letter: Letter) -> bool:
        nonlocal gone
        done = await act(letter)
        gone += done
        return done

    await letters.sweep(counted)
    return gone


def _choice(
    ids: list[str] | None, queue: str, reason: str, since: str, *, everything: bool
) -> Choice:
    if not (ids or queue or reason or since or everything):
        message = "say which: ids, --queue, --reason, --since or --all"
        raise ConfigurationError([Problem(path="dead-letter", message=message)])
    return Choice(ids=tuple(ids or ()), queue=queue, reason=reason, since=_moment(since))


def _moment(since: str) -> float:
    try:
        return unix_since(since, time.time()) if since else 0.0
    except InvalidSubmission as error:
        raise ConfigurationError([Problem(path="--since", message=error.reason)]) from None


def _with_letters(config: Any, url: str, work: Callable[[DeadLetters], Awaitable[None]]) -> None:
    loop.run(_connected(broker.target(config, url), work))


async def _connected(where: broker.Target, work: Callable[[DeadLetters], Awaitable[None]]) -> None:
    connection = where.connection()
    await connection.open()
    try:
        await work(DeadLetters(connection, where.dead_letter_queue))
    finally:
        await connection.close()


def _require(count: int, otherwise: str) -> None:
    if count:
        return
    if otherwise:
        typer.echo(f"async-processor: {otherwise}", err=True)
    raise typer.Exit(1)


def _facts(letter: Letter) -> dict[str, Any]:
    content = letter.content
    if content is None:
        return {"id": "", "reason": "this is no dead letter", "bytes": len(letter.raw)}
    return {
        "id": letter.id,
        "queue_name": content.queue_name,
        "reason": content.reason,
        "buried_at": content.buried_at,
        "deliveries": content.deliveries,
        "bytes": len(content.body),
        "readable": not isinstance(letter.message, InvalidMessage),
    }


def _row(letter: Letter) -> str:
    content = letter.content
    if content is None:
        return f"-\t-\t-\tthis is no dead letter ({len(letter.raw)} bytes)"
    buried = datetime.fromtimestamp(content.buried_at, UTC).strftime("%Y-%m-%d %H:%M:%S")
    reason = " ".join(content.reason.split())
    return f"{buried}\t{letter.id or '-'}\t{content.queue_name}\t{reason}"
