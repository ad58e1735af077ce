"""A replica in one process and in several: what it costs to divide the work, and what it gains.

Each has a broker and a server of its own, and they take turns. On a machine whose cores are all in
use the rate says little; requests per second of CPU time say how much of a core is left for work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from statistics import median
from typing import Final

import msgspec

from benchmarks.contender import Contender, our_configuration
from benchmarks.gateway import instant_gateway
from benchmarks.messages import payload
from benchmarks.processes import cpu_seconds, resident_mib
from benchmarks.report import Cell, Report
from benchmarks.stage import Stage, stage

_WORKERS: Final = 256
_WARM_UP: Final = 4
_BODY: Final = payload(100)
_AIMS: Final = (
    "aims: requests per CPU second >= 0.85 of one process's, requests/s no fewer. Medians of the"
    " turns, the ratios those of neighbours; CPU is seconds per 1,000 requests, the supervisor's"
    " too, and memory that of all."
)


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """Requests per second, and CPU in seconds per 1,000 requests."""

    rate: float
    cpu: float


class Replica(msgspec.Struct, frozen=True, eq=False):
    """One that runs before a broker of its own."""

    here: Stage
    pid: int

    async def turn(self, requests: int) -> Turn:
        await self.here.lay_aside(requests, _BODY)
        before = cpu_seconds(self.pid)
        seconds = await self.here.work_off(requests)
        used = cpu_seconds(self.pid) - before
        await self.here.succeeded(requests)
        return Turn(rate=requests / seconds, cpu=used / (requests / 1000))


async def cores(*, processes: Sequence[int] = (1, 2), requests: int, turns: int) -> Report:
    """Compare the first number of processes with the others."""
    async with AsyncExitStack() as stack:
        replicas = [await _replica(stack, each) for each in processes]
        for replica in replicas:
            await replica.turn(_WARM_UP * _WORKERS)
        made = [[await replica.turn(requests) for replica in replicas] for _ in range(turns)]
        memory = [resident_mib(replica.pid) for replica in replicas]
    rows = [
        _row(number, [turn[place] for turn in made], [turn[0] for turn in made], memory[place])
        for place, number in enumerate(processes)
    ]
    title = f"Processes: {requests:,} requests, {_WORKERS} workers, {turns} turns"
    return Report(name="cores", title=title, rows=rows, aims=_AIMS)


async def _replica(stack: AsyncExitStack, processes: int) -> Replica:
    here = await stack.enter_async_context(stage())
    gateway = await stack.enter_async_context(instant_gateway())
    contender = Contender(configuration=f"{our_configuration()}processes: {processes}\n")
    running = await stack.enter_async_context(
        here.processor(contender, gateway.url, workers=_WORKERS)
    )
    return Replica(here, running.pid)


def _row(
    processes: int, turns: Sequence[Turn], ones: Sequence[Turn], memory: float
) -> Mapping[str, Cell]:
    pairs = list(zip(turns, ones, strict=True))
    return {
        "processes": processes,
        "req/s": median(turn.rate for turn in turns),
        "CPU": median(turn.cpu for turn in turns),
        "MiB": memory,
        "req/s beside": median(turn.rate / one.rate for turn, one in pairs),
        "per CPU second beside": median(one.cpu / turn.cpu for turn, one in pairs),
    }
