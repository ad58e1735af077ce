"""`async-processor dead-letter list|show|requeue|purge`."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Final

import msgspec
import typer

from async_processor.cli import broker, loop
from async_processor.cli.letter_words import TITLES, facts, named, row, whole
from async_processor.errors import BrokerRefused, ConfigurationError, Problem
from async_processor.producer.dead_letters import DeadLetters, Letter
from async_processor.producer.deadline import unix_since
from async_processor.producer.errors import DeadlinePassed, InvalidSubmission
from async_processor.telemetry.masking import one_line

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
ReasonFilter = Annotated[
    str, typer.Option("--reason", help="Only those whose reason, a sentence, has this in it.")
]
SinceFilter = Annotated[
    str,
    typer.Option(
        "--since", help="Only those buried since: a duration back, Unix seconds or ISO 8601."
    ),
]
AllOption = Annotated[bool, typer.Option("--all", help="Every dead letter.")]


_EITHER: Final = "dead-letter requeue delivers it, --with-results deletes it"


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

    Example: async-processor dead-letter list --reason delivered --since 1h
    """
    chosen = _choice(ids, queue, reason, since, everything=True)

    async def show(letters: DeadLetters) -> None:
        listed = 0
        async for letter in letters.each():
            if letter in chosen:
                if not as_json and not listed:
                    typer.echo(TITLES)
                typer.echo(msgspec.json.encode(facts(letter)) if as_json else row(letter))
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
                typer.echo(whole(letter))
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

    A request that is moved back runs again and gets a result; most have got one already, which said
    why they were buried (INVALID_REQUEST, MAX_DELIVERIES), and so get another. Whether their
    readers can take that is yours to decide. One that has run, and whose result no list took, does
    not run again: the result that the letter holds goes to its list.

    Example: async-processor dead-letter requeue --all --deadline 1h
    """
    chosen = _choice(ids, queue, reason, since, everything=everything)

    async def move(letters: DeadLetters) -> None:
        returned = _Return(letters, chosen, deadline)
        moved = await _sweep(letters, returned)
        posted = (
            f", of them {returned.posted} as the result that was held" if returned.posted else ""
        )
        _conclude(f"requeued {moved}{posted}", moved, returned.faults)

    _with_letters(config, url, move)


class _Return:
    """Brings letters back, and collects what hindered it."""

    def __init__(self, letters: DeadLetters, chosen: Choice, deadline: str) -> None:
        self._letters = letters
        self._chosen = chosen
        self._deadline = deadline
        self.posted = 0
        self.faults: list[str] = []

    async def __call__(self, letter: Letter) -> bool:
        try:
            return letter in self._chosen and await self._bring_back(letter)
        except DeadlinePassed as error:
            self._failed(letter, f"{error}; give it a new one with --deadline")
        except (InvalidSubmission, BrokerRefused) as error:
            self._failed(letter, str(error))
        return False

    async def _bring_back(self, letter: Letter) -> bool:
        if not letter.holds_result:
            return await self._letters.requeue(letter, self._deadline or None)
        posted = await self._letters.post(letter)
        self.posted += posted
        return posted

    def _failed(self, letter: Letter, fault: str) -> None:
        self.faults.append(f"{named(letter)}: {fault}")


@app.command("purge")
def purge(
    ids: IdsArgument = None,
    config: broker.ConfigOption = None,
    url: broker.UrlOption = "",
    queue: QueueFilter = "",
    reason: ReasonFilter = "",
    since: SinceFilter = "",
    everything: AllOption = False,
    results_too: Annotated[
        bool, typer.Option("--with-results", help="Also those that hold a result.")
    ] = False,
) -> None:
    """Delete dead letters for good.

    Those that hold the only copy of a result, which no list took, are kept, unless --with-results
    is given; requeue delivers it. Exit code 1 where some were kept.

    Example: async-processor dead-letter purge --queue request-sortedset --reason JSON
    """
    chosen = _choice(ids, queue, reason, since, everything=everything)

    async def delete(letters: DeadLetters) -> None:
        kept: list[str] = []

        async def act(letter: Letter) -> bool:
            if letter not in chosen:
                return False
            if letter.holds_result and not results_too:
                kept.append(
                    f"{named(letter)}: kept, for it holds the only copy of a result; {_EITHER}"
                )
                return False
            return await letters.purge(letter)

        purged = await _sweep(letters, act)
        _conclude(f"purged {purged}", purged, kept)

    _with_letters(config, url, delete)


def _conclude(told: str, count: int, faults: Sequence[str]) -> None:
    """Say what was done; exits with 1 where something was not, or nothing was."""
    typer.echo(told, err=True)
    for fault in faults:
        typer.echo(f"async-processor: {one_line(fault)}", err=True)
    _require(count if not faults else 0, "" if faults else "no dead letter matches")


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
        letters = DeadLetters(connection, where.dead_letter_queue, results=where.results_from)
        await work(letters)
    finally:
        await connection.close()


def _require(count: int, otherwise: str) -> None:
    if count:
        return
    if otherwise:
        typer.echo(f"async-processor: {otherwise}", err=True)
    raise typer.Exit(1)
