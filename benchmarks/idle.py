"""What a processor costs that has nothing to do, or may not do it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from benchmarks.contender import CLOSED, WITH_PROMETHEUS, Contender, our_configuration
from benchmarks.counting import counted
from benchmarks.gateway import instant_gateway
from benchmarks.messages import payload
from benchmarks.processes import BenchmarkFailed, cpu_seconds, resident_mib
from benchmarks.report import Cell, Report
from benchmarks.stage import stage

_SETTLING_DOWN: Final = 2.0
_BACKLOG: Final = 10_000
_BUDGET_KEY: Final = "benchmark-budget"
_CLOSED: Final = {
    "saturation gate": CLOSED,
    "the same, shared": CLOSED.replace("}", ", shared: true}"),
    "budget key": f"{{type: redis, budget_key: {_BUDGET_KEY}}}",
}


async def idle(contender: Contender, *, seconds: float = 15.0) -> Report:
    """Leave it alone and watch; ours has ten queues."""
    if contender == Contender():
        contender = Contender(configuration=our_configuration(more_queues=9))
    return Report(
        name="idle",
        title=f"Idle: {seconds:g} s with nothing to do",
        rows=[await _watched(contender, seconds)],
        aims="aim: <= 1 % of a core",
    )


async def closed_gate(*, seconds: float = 20.0) -> Report:
    """Leave it alone with a backlog behind a gate that is closed."""
    rows = []
    for what, gate in _CLOSED.items():
        contender = Contender(configuration=our_configuration(gate=gate) + WITH_PROMETHEUS)
        rows.append({"what": what, **await _watched(contender, seconds, backlog=_BACKLOG)})
    return Report(
        name="closed-gate",
        title=f"Closed gate: {seconds:g} s before a backlog of {_BACKLOG:,}",
        rows=rows,
        aims="aim: at most 5 commands a second for the queue",
    )


async def _watched(contender: Contender, seconds: float, *, backlog: int = 0) -> Mapping[str, Cell]:
    async with stage() as here, instant_gateway() as gateway:
        await here.ask("SET", _BUDGET_KEY, 0)  # before anybody has read it as open
        async with here.processor(contender, gateway.url, workers=64) as processor:
            if backlog:
                await here.lay_aside(backlog, payload(100))
                await here.release()
            await asyncio.sleep(_SETTLING_DOWN)
            async with counted(here.server.port) as counts:
                before = cpu_seconds(processor.pid)
                await asyncio.sleep(seconds)
                used = cpu_seconds(processor.pid) - before
            if (await gateway.stats()).calls:
                raise BenchmarkFailed("the gate was to let nothing through")
            return {
                "% of a core": 100 * used / seconds,
                "commands/s": counts.total() / seconds,
                "of these": ", ".join(
                    f"{name} {count / seconds:.2f}" for name, count in counts.most_common(5)
                ),
                "MiB": resident_mib(processor.pid),
            }
