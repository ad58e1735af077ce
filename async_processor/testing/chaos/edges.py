"""Where the guarantee ends, measured: `python -m async_processor.testing.chaos.edges`.

What Redis itself forgets is lost: without its log when it dies, and in a failover to a replica
that lags. Each case stands beside the settings that close it, or narrow it.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from async_processor.fields import Confirm
from async_processor.testing.chaos.failover import lose_by_failover
from async_processor.testing.chaos.loss import Loss, await_idle, await_results, count, result_bodies
from async_processor.testing.chaos.stage import DURABLE, Scene, stage

_REQUESTS: Final = 200
_CONFIRMED: Final = Confirm(replicas=1, timeout=1.0)
_CAREFUL: Final = ("--min-replicas-to-write", "1", "--min-replicas-max-lag", "1")


async def lose_by_restart(name: str, folder: Path, *, broker_args: tuple[str, ...]) -> Loss:
    """Redis dies under load and is started again."""
    scene = Scene(replicas=2, workers=8, latency=0.2, refusals=0, broker_args=broker_args)
    async with stage(scene, folder) as here:
        accepted = await here.submit(_REQUESTS)
        await await_results(here.broker, _REQUESTS // 4)
        before = await result_bodies(here.broker)
        await asyncio.to_thread(here.broker.kill)
        await asyncio.to_thread(here.broker.start)
        await await_idle(here.broker)
        return count(name, accepted, [*before, *await result_bodies(here.broker)])


async def _losses(folder: Path) -> AsyncIterator[Loss]:
    yield await lose_by_restart("Redis without a log, killed", folder / "1", broker_args=())
    yield await lose_by_restart(
        "the same with `appendonly yes`, `appendfsync always`", folder / "2", broker_args=DURABLE
    )
    for name, confirm, args in (
        ("failover to a replica that lags by 3 s", Confirm(), ()),
        ("the same with `confirm: {replicas: 1}`", _CONFIRMED, ()),
        ("the same with `min-replicas-to-write 1` too", _CONFIRMED, _CAREFUL),
    ):
        yield await lose_by_failover(
            name, folder / name.split()[-1], confirm=confirm, master_args=args
        )


async def _show() -> None:
    sys.stdout.write("| case | accepted | lost | with a second result |\n|---|---:|---:|---:|\n")
    with tempfile.TemporaryDirectory(prefix="async-processor-edges-") as folder:
        async for loss in _losses(Path(folder)):
            figures = (loss.name, loss.accepted, loss.lost, loss.doubled)
            sys.stdout.write(f"| {' | '.join(map(str, figures))} |\n")


if __name__ == "__main__":
    asyncio.run(_show())
