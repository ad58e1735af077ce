"""Whether a long backlog is slower than a short one: one processor before both, by turns.

The long one is put before the processor and taken away again, each at one stroke, so that both are
measured by the same processes within seconds of each other.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final

import msgspec

from benchmarks.contender import Contender
from benchmarks.gateway import instant_gateway
from benchmarks.messages import ASIDE, QUEUE, RESULTS, messages, payload
from benchmarks.processes import cpu_seconds, resident_mib
from benchmarks.report import Cell, Report
from benchmarks.stage import Stage, stage

_WORKERS: Final = 64
_SHORT: Final = 10_000
_OF_IT: Final = 0.8
"""The part of the short backlog that is measured: its end has no work for all workers."""
_LONG_ASIDE: Final = "benchmark-long-backlog"
_BODY: Final = payload(200)
_AIMS: Final = (
    "aim: the long one at >= 0.90 of the short one's rate, in the same memory. The ratio is the"
    " median of the turns; CPU is seconds per 1,000 requests. MiB are those before the long one was"
    " ever there, and the most with it."
)


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """Requests a second, CPU in seconds per 1,000 requests, and memory after it."""

    rate: float
    cpu: float
    broker_cpu: float
    mib: float


async def backlog(contender: Contender, *, requests: int = 1_000_000, turns: int = 5) -> Report:
    """Compare `requests` with 10,000, or a tenth if that is less."""
    short = min(_SHORT, requests // 10)
    count = int(_OF_IT * short)
    made: list[tuple[Turn, Turn]] = []
    async with (
        stage() as here,
        instant_gateway() as gateway,
        here.processor(contender, gateway.url, workers=_WORKERS) as processor,
    ):
        await here.lay_aside(short, _BODY)
        await here.work_off(short)
        await here.lay_aside_messages(messages(requests, _BODY), key=_LONG_ASIDE)
        for _ in range(turns):
            await here.lay_aside(short, _BODY)
            shorter = await _turn(here, processor.pid, count, ASIDE)
            await here.results(short)
            await here.ask("DEL", RESULTS)
            made.append((shorter, await _turn(here, processor.pid, count, _LONG_ASIDE)))
            await here.release(key=QUEUE, to=_LONG_ASIDE)
    title = f"Backlog: {count:,} requests of a short and of a long one, {turns} turns"
    short_turns, long_turns = zip(*made, strict=True)
    ratio = median(long.rate / short.rate for short, long in made)
    rows = [
        _row(short, short_turns, ratio=1.0, mib=short_turns[0].mib),
        _row(requests, long_turns, ratio=ratio, mib=max(turn.mib for turn in long_turns)),
    ]
    return Report(name="backlog", title=title, rows=rows, aims=_AIMS)


async def _turn(here: Stage, pid: int, count: int, key: str) -> Turn:
    pids = (pid, here.server.pid)
    before, start = [cpu_seconds(each) for each in pids], time.perf_counter()
    await here.release(key=key)
    await here.results(count)
    seconds = time.perf_counter() - start
    cpu, broker_cpu = (cpu_seconds(each) - used for each, used in zip(pids, before, strict=True))
    return Turn(
        rate=count / seconds,
        cpu=cpu * 1000 / count,
        broker_cpu=broker_cpu * 1000 / count,
        mib=resident_mib(pid),
    )


def _row(requests: int, turns: Sequence[Turn], *, ratio: float, mib: float) -> Mapping[str, Cell]:
    return {
        "backlog": requests,
        "req/s": median(turn.rate for turn in turns),
        "ratio": ratio,
        "CPU": median(turn.cpu for turn in turns),
        "broker CPU": median(turn.broker_cpu for turn in turns),
        "MiB": mib,
    }
