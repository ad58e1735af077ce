"""`async-processor cancel`."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from async_processor.cli import broker, loop


def cancel(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of requests.")],
    config: broker.ConfigOption = None,
    url: broker.UrlOption = "",
    as_json: broker.JsonOption = False,
) -> None:
    """Cancel requests: each still ends in one result, CANCELLED.

    Of several requests under one id the last one submitted is meant. Exit code 1 where there was
    nothing to cancel: no such request, one that has ended, or one submitted without a token.

    Example: async-processor cancel r-1 r-2
    """
    outcome = dict(zip(ids, loop.run(_cancel(broker.any_target(config, url), ids)), strict=True))
    if as_json:
        typer.echo(msgspec.json.encode(outcome))
    for request_id, cancelled in outcome.items():
        if cancelled and not as_json:
            typer.echo(f"{request_id}: cancelled")
        elif not cancelled:
            typer.echo(
                f"async-processor: {request_id}: nothing to cancel: it is not queued or running, "
                "or it was submitted without a token",
                err=True,
            )
    if not all(outcome.values()):
        raise typer.Exit(1)


async def _cancel(where: broker.AnyTarget, ids: list[str]) -> list[bool]:
    single = msgspec.structs.replace(where, queues=where.queues[:1])
    async with broker.producer(single) as producer:
        return await producer.cancel(*ids)
