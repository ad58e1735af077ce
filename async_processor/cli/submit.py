"""`async-processor submit`."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from async_processor.cli import broker, loop
from async_processor.errors import ConfigurationError, Problem

if TYPE_CHECKING:
    from async_processor.cli.submitting import Job, Tally


def submit(
    file: Annotated[
        str, typer.Argument(metavar="[FILE|-]", help="JSON or JSONL; - is standard input.")
    ] = "-",
    deadline: Annotated[
        str, typer.Option(help="Of requests without one: a duration, Unix seconds or ISO 8601.")
    ] = "1h",
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the results.")] = False,
    output: Annotated[
        Path | None, typer.Option(help="Write there instead of to standard output.")
    ] = None,
    config: broker.ConfigOption = None,
    url: broker.UrlOption = "",
    queue: broker.QueueOption = "",
    result_queue: broker.ResultQueueOption = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each request's whole handle, not its id alone.")
    ] = False,
) -> None:
    """Submit requests, or bare payloads, which get an id and the deadline of --deadline.

    A file is checked whole before anything is submitted: all of it, or nothing. Standard input is
    submitted as it comes, up to the first bad line. Prints the ids; with --wait the results, as
    JSON lines in the order in which they come, and exit code 1 unless every one is 2xx.

    Example: async-processor submit requests.jsonl --deadline 1h --wait --output results.jsonl
    """
    from async_processor.cli.submitting import Job, summarise

    where = broker.any_target(config, url, queue, result_queue)
    if wait and where.queue in where.overrides:
        raise _wrong(
            "--wait",
            f"results of {where.queue} all go to {where.overrides[where.queue]}; "
            "submit without --wait and read them with results --result-queue",
        )
    with ExitStack() as files:
        job = Job(
            source=_input(file, files),
            open_output=lambda: _output(output, files),
            deadline=deadline,
            checkable=file != "-",
            waits=wait,
            whole_handles=as_json,
        )
        tally = loop.run(_run(job, where))
    summarise(tally, where.queue, waited=wait)
    if tally.failed or tally.missing:
        raise typer.Exit(1)


async def _run(job: Job, where: broker.AnyTarget) -> Tally:
    async with broker.producer(where, patient=job.waits) as producer:
        return await job.run(producer)


def _input(file: str, files: ExitStack) -> BinaryIO:
    if file == "-":
        return sys.stdin.buffer
    try:
        return files.enter_context(Path(file).open("rb"))
    except OSError as error:
        raise _wrong(file, f"cannot be read: {error.strerror}") from None


def _output(output: Path | None, files: ExitStack) -> BinaryIO:
    if output is None:
        return sys.stdout.buffer
    try:
        return files.enter_context(output.open("wb"))
    except OSError as error:
        raise _wrong(str(output), f"cannot be written: {error.strerror}") from None


def _wrong(path: str, message: str) -> ConfigurationError:
    return ConfigurationError([Problem(path=path, message=message)])
