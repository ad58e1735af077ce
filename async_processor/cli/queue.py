"""`async-processor queue restore`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import typer

from async_processor.cli import broker, loop

if TYPE_CHECKING:
    from async_processor.redis_io.client import RedisClient

app = typer.Typer(add_completion=False)


@app.callback()
def _queue() -> None:
    """Prepare queues for another processor.

    Example: async-processor queue restore --config config.yaml
    """


@app.command()
def restore(
    config: broker.ConfigOption = None,
    url: broker.UrlOption = "",
    queue: broker.QueueOption = "",
    as_json: broker.JsonOption = False,
) -> None:
    """Put parked requests back into their queues, under their own deadlines.

    Requests over a quota wait apart from their queue, where other processors do not look. Stop all
    daemons first, or they park them again; what those held they have given back when they ended.

    Example: async-processor queue restore --config config.yaml
    """
    restored = loop.run(_restore(broker.target(config, url, queue)))
    if as_json:
        typer.echo(msgspec.json.encode(restored))
        return
    for name, count in restored.items():
        typer.echo(f"{name}: {count} put back")


async def _restore(where: broker.Target) -> dict[str, int]:
    connection = where.connection()
    await connection.open()
    try:
        return {name: await _put_all_back(connection.client, name) for name in where.queues}
    finally:
        await connection.close()


async def _put_all_back(client: RedisClient, queue_name: str) -> int:
    from async_processor.redis_io import parked

    names = await parked.lots(client, queue_name)
    return sum([await parked.put_back(client, queue_name, lot) for lot in names])
