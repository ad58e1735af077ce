"""Requests per second of one processor, beside what a bare client loop makes of the machine.

Bare loop and processor take turns against the same server; what counts is the median of the
ratios of neighbours, for both feel the same neighbours on the machine. CPU time per request is the
steadier figure: it does not depend on who else runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final

import msgspec

from benchmarks.bare_loop import Timing
from benchmarks.contender import Contender
from benchmarks.counting import counted
from benchmarks.gateway import Gateway, instant_gateway
from benchmarks.messages import payload
from benchmarks.processes import cpu_seconds, output_of
from benchmarks.report import Cell, Report
from benchmarks.stage import Stage, stage

_WARM_UP: Final = 4
"""Requests for each worker before anything counts."""

_OUR_OWN: Final = frozenset({"LLEN", "RENAME"})
"""What the driver asks while commands are counted."""

_AIMS: Final = (
    "aims: ratio >= 0.70 at 256 workers, commands per request <= 0.2. The ratio is the median of"
    " the turns; CPU is seconds per 1,000 requests."
)


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement of both; CPU in seconds per 1,000 requests."""

    bare_rate: float
    rate: float
    bare_cpu: float
    cpu: float
    broker_cpu: float
    gateway_cpu: float


async def throughput(
    contender: Contender,
    *,
    workers: Sequence[int] = (64, 256),
    requests: int = 10_000,
    turns: int = 3,
    payload_bytes: int = 100,
) -> Report:
    """Compare at each number of workers."""
    body = payload(payload_bytes)
    rows = [await _compared(contender, each, requests, turns, body) for each in workers]
    title = f"Throughput: {requests:,} requests of {len(body)} bytes, {turns} turns"
    return Report(name="throughput", title=title, rows=rows, aims=_AIMS)


async def _compared(
    contender: Contender, workers: int, requests: int, turns: int, body: bytes
) -> Mapping[str, Cell]:
    async with (
        stage() as here,
        instant_gateway() as gateway,
        here.processor(contender, gateway.url, workers=workers) as processor,
    ):
        await here.lay_aside(_WARM_UP * workers, body)
        await here.work_off(_WARM_UP * workers)
        made = [
            await _turn(here, gateway, processor.pid, workers, requests, body) for _ in range(turns)
        ]
        commands = await _commands_per_request(here, requests, body)
    return _row(workers, made, commands)


async def _turn(
    here: Stage, gateway: Gateway, pid: int, workers: int, requests: int, body: bytes
) -> Turn:
    bare = await _bare(gateway.url, workers, requests, len(body))
    await here.lay_aside(requests, body)
    pids = (pid, here.server.pid, gateway.pid)
    before = [cpu_seconds(each) for each in pids]
    seconds = await here.work_off(requests)
    used = [cpu_seconds(each) - start for each, start in zip(pids, before, strict=True)]
    thousands = requests / 1000
    return Turn(
        bare_rate=requests / bare.seconds,
        rate=requests / seconds,
        bare_cpu=bare.cpu_seconds / thousands,
        cpu=used[0] / thousands,
        broker_cpu=used[1] / thousands,
        gateway_cpu=used[2] / thousands,
    )


async def _bare(url: str, workers: int, requests: int, size: int) -> Timing:
    arguments = (f"{url}/v1/completions", str(workers), str(requests), str(size))
    return msgspec.json.decode(await output_of("benchmarks.bare_loop", *arguments), type=Timing)


async def _commands_per_request(here: Stage, requests: int, body: bytes) -> Mapping[str, float]:
    await here.lay_aside(requests, body)
    async with counted(here.server.port) as counts:
        await here.work_off(requests)
    return {name: count / requests for name, count in counts.most_common() if name not in _OUR_OWN}


def _row(workers: int, turns: Sequence[Turn], commands: Mapping[str, float]) -> Mapping[str, Cell]:
    most = ", ".join(f"{name} {count:.3f}" for name, count in list(commands.items())[:3])
    return {
        "workers": workers,
        "bare req/s": median(turn.bare_rate for turn in turns),
        "req/s": median(turn.rate for turn in turns),
        "ratio": median(turn.rate / turn.bare_rate for turn in turns),
        "bare CPU": median(turn.bare_cpu for turn in turns),
        "CPU": median(turn.cpu for turn in turns),
        "broker CPU": median(turn.broker_cpu for turn in turns),
        "server CPU": median(turn.gateway_cpu for turn in turns),
        "commands/req": sum(commands.values()),
        "of these": most,
    }
