"""What a processor costs that has nothing to do."""

from __future__ import annotations

import asyncio
from typing import Final

from benchmarks.contender import Contender, our_configuration
from benchmarks.counting import counted
from benchmarks.gateway import instant_gateway
from benchmarks.processes import cpu_seconds, resident_mib
from benchmarks.report import Cell, Report
from benchmarks.stage import stage

_SETTLING_DOWN: Final = 2.0


async def idle(contender: Contender, *, seconds: float = 15.0) -> Report:
    """Leave it alone and watch; ours has ten queues."""
    if contender == Contender():
        contender = Contender(configuration=our_configuration(more_queues=9))
    async with (
        stage() as here,
        instant_gateway() as gateway,
        here.processor(contender, gateway.url, workers=64) as processor,
    ):
        await asyncio.sleep(_SETTLING_DOWN)
        async with counted(here.server.port) as counts:
            before = cpu_seconds(processor.pid)
            await asyncio.sleep(seconds)
            used = cpu_seconds(processor.pid) - before
        row: dict[str, Cell] = {
            "% of a core": 100 * used / seconds,
            "commands/s": counts.total() / seconds,
            "of these": ", ".join(
                f"{name} {count / seconds:.2f}" for name, count in counts.most_common(4)
            ),
            "MiB": resident_mib(processor.pid),
        }
    return Report(
        name="idle",
        title=f"Idle: {seconds:g} s with nothing to do",
        rows=[row],
        aims="aim: <= 1 % of a core",
    )
