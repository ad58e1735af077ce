"""`async-processor pubsub setup`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from async_processor.cli import loop
from async_processor.errors import ConfigurationError, Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from async_processor.config.settings import PubSubTransport
    from async_processor.transport.google_pubsub.setup import Step

app = typer.Typer(
    add_completion=False,
    help="""Prepare Google Pub/Sub.

    Example: async-processor pubsub setup --config pubsub.yaml --dry-run
    """,
)

_GRANTS: Final = (
    "for dead letters Pub/Sub's own service account must be a publisher on the dead-letter topic "
    "and a subscriber of the subscription: https://cloud.google.com/pubsub/docs/dead-letter-topics"
)


@app.callback()
def _group() -> None:
    """Prepare Google Pub/Sub."""


@app.command("setup")
def setup(
    config: Annotated[Path, typer.Option("--config", help="The daemon's configuration.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be created, and create nothing.")
    ] = False,
) -> None:
    """Create the topics and subscriptions of a configuration, with the recommended settings.

    What is there already stays as it is; where it differs from what is recommended, that is said.

    Example: async-processor pubsub setup --config pubsub.yaml --dry-run
    """
    from async_processor.transport.google_pubsub.setup import steps

    transport = _transport(config)
    planned = steps(transport, {one.queue_name: one.topic_id for one in transport.topics})
    if dry_run:
        for step in planned:
            typer.echo(f"would create {step}")
        typer.echo("note: nobody was asked; what is there already would stay as it is", err=True)
        return
    loop.run(_create(planned))
    typer.echo(f"note: {_GRANTS}", err=True)


def _transport(config: Path) -> PubSubTransport:
    from async_processor.config.load import load
    from async_processor.config.settings import PubSubTransport

    transport = load(config, os.environ).transport
    if not isinstance(transport, PubSubTransport):
        message = f"got {transport.type!r}, must be gcp-pubsub"
        raise ConfigurationError([Problem(path="transport.type", message=message)])
    return transport


async def _create(planned: Sequence[Step]) -> None:
    from async_processor.clock import SystemClock
    from async_processor.google_io.client import PubSubClient
    from async_processor.transport.google_pubsub.setup import differences, do

    client = PubSubClient(SystemClock())
    await client.open()
    try:
        for step in planned:
            if await do(step, client):
                typer.echo(f"created {step}")
                continue
            typer.echo(f"exists  {step}")
            for difference in await differences(step, client):
                typer.echo(f"        {difference}")
    finally:
        await client.close()
