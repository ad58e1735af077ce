"""`async-processor results`."""

from __future__ import annotations

import sys
from itertools import count as counted
from typing import TYPE_CHECKING, Annotated, BinaryIO

import msgspec
import typer

from async_processor.cli import broker, loop
from async_processor.errors import ConfigurationError, Problem

if TYPE_CHECKING:
    from async_processor.producer import Taken


def results(
    config: broker.ConfigOption = None,
    url: broker.UrlOption = "",
    result_queue: broker.ResultQueueOption = "",
    follow: Annotated[
        bool, typer.Option("--follow", help="Wait for more when the queue is empty.")
    ] = False,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after so many results.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines; the only form.")] = True,
) -> None:
    """Take results off the result queue and print them as JSON lines.

    A result leaves the queue for good only after its line has been written.

    Example: async-processor results --follow > results.jsonl
    """
    del as_json
    where = broker.any_target(config, url, result_queue=result_queue)
    if not where.results_from:
        message = "is required: on Pub/Sub results are read from a subscription of the result topic"
        raise ConfigurationError([Problem(path="--result-queue", message=message)])
    loop.run(_print(where, follow=follow, count=count))


async def _print(where: broker.AnyTarget, *, follow: bool, count: int | None) -> None:
    single = msgspec.structs.replace(where, queues=where.queues[:1])
    async with (
        broker.producer(single, patient=follow) as producer,
        producer.results(where.results_from, follow=follow) as reader,
    ):
        for printed in counted(1):
            taken = await anext(reader, None)
            if taken is None:
                return
            write(taken, sys.stdout.buffer)
            await taken.ack()
            if printed == count:
                return


def write(taken: Taken, output: BinaryIO) -> None:
    """One line for one result, out of this process when it returns."""
    output.write(line(taken.body) + b"\n")
    output.flush()


def line(body: bytes) -> bytes:
    """A result on one line; what is no JSON object, in `unreadable`."""
    try:
        msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return msgspec.json.encode({"unreadable": body.decode(errors="replace")})
    return body.replace(b"\n", b" ")
