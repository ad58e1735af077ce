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
from benchmarks.processes import cpu_seconds, output_of, peak_mib
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


_IN_FLIGHT_AIMS: Final = (
    "aims: ratio >= 0.60 at 10,000 calls, at most 500 MiB. The bare loop has as many connections."
    " `most in flight` is what the server held at once: on a slow machine the first calls end while"
    " the last ones are still being sent."
)


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement of both; CPU in seconds per 1,000 requests."""

    bare_rate: float
    rate: float
    bare_cpu: float
    cpu: float
    broker_cpu: float
    gateway_cpu: float


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What both are put to: a call takes the server `delay` seconds."""

    workers: int
    requests: int
    turns: int
    body: bytes = payload(100)
    delay: float = 0.0


async def throughput(
    contender: Contender,
    *,
    workers: Sequence[int] = (64, 256),
    requests: int = 10_000,
    turns: int = 3,
) -> Report:
    """Compare at each number of workers, with a server that answers at once."""
    loads = [Load(workers=each, requests=requests, turns=turns) for each in workers]
    rows = [await compared(contender, load) for load in loads]
    title = f"Throughput: {requests:,} requests of {len(loads[0].body)} bytes, {turns} turns"
    return Report(name="throughput", title=title, rows=rows, aims=_AIMS)


async def in_flight(
    contender: Contender, *, calls: int = 10_000, requests: int = 0, turns: int = 3
) -> Report:
    """Compare with very many calls in flight, 2 s and 4 KiB each; `requests`: three for each."""
    load = Load(
        workers=calls, requests=requests or 3 * calls, turns=turns, body=payload(4096), delay=2.0
    )
    title = f"In flight: {calls:,} calls at a time, each of {load.delay:g} s and 4 KiB"
    rows = [await compared(contender, load)]
    return Report(name="in-flight", title=title, rows=rows, aims=_IN_FLIGHT_AIMS)


async def compared(contender: Contender, load: Load) -> Mapping[str, Cell]:
    """The processor beside the bare loop, as a row."""
    async with (
        stage() as here,
        instant_gateway(load.delay) as gateway,
        here.processor(contender, gateway.url, workers=load.workers) as processor,
    ):
        await here.lay_aside(_WARM_UP * load.workers, load.body)
        await here.work_off(_WARM_UP * load.workers)
        most_held = (await gateway.stats()).most_held  # the bare loop has not called yet
        made = [await _turn(here, gateway, processor.pid, load) for _ in range(load.turns)]
        peak = peak_mib(processor.pid)
        commands = await _commands_per_request(here, load)
    row = _row(load.workers, made, peak, commands)
    return {**row, "most in flight": most_held} if load.delay else row


async def _turn(here: Stage, gateway: Gateway, pid: int, load: Load) -> Turn:
    bare = await _bare(gateway.url, load)
    await here.lay_aside(load.requests, load.body)
    calls = (await gateway.stats()).calls
    pids = (pid, here.server.pid, gateway.pid)
    before = [cpu_seconds(each) for each in pids]
    seconds = await here.work_off(load.requests)
    used = [cpu_seconds(each) - start for each, start in zip(pids, before, strict=True)]
    await here.succeeded(load.requests)
    await gateway.called(load.requests, since=calls)
    thousands = load.requests / 1000
    return Turn(
        bare_rate=load.requests / bare.seconds,
        rate=load.requests / seconds,
        bare_cpu=bare.cpu_seconds / thousands,
        cpu=used[0] / thousands,
        broker_cpu=used[1] / thousands,
        gateway_cpu=used[2] / thousands,
    )


async def _bare(url: str, load: Load) -> Timing:
    figures = map(str, (load.workers, load.requests, len(load.body)))
    arguments = (f"{url}/v1/completions", *figures)
    return msgspec.json.decode(await output_of("benchmarks.bare_loop", *arguments), type=Timing)


async def _commands_per_request(here: Stage, load: Load) -> Mapping[str, float]:
    await here.lay_aside(load.requests, load.body)
    async with counted(here.server.port) as counts:
        await here.work_off(load.requests)
    asked = counts.most_common()
    return {name: count / load.requests for name, count in asked if name not in _OUR_OWN}


def _row(
    workers: int, turns: Sequence[Turn], peak: float, commands: Mapping[str, float]
) -> Mapping[str, Cell]:
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
        "peak MiB": peak,
        "commands/req": sum(commands.values()),
        "of these": most,
    }
