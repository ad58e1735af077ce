"""Memory with many calls in flight, all at the same time."""

from __future__ import annotations

import asyncio
from typing import Final

from benchmarks.contender import Contender
from benchmarks.gateway import instant_gateway
from benchmarks.messages import payload
from benchmarks.processes import resident_mib
from benchmarks.report import Report
from benchmarks.stage import Stage, stage

_DELAY: Final = 3.0
"""Seconds that a call takes: long enough for all of them to be in flight together."""

_LOOK_SECONDS: Final = 0.05


async def memory(
    contender: Contender, *, in_flight: int = 2000, payload_bytes: int = 4096, rounds: int = 2
) -> Report:
    """Work off `rounds` times as many requests as fit at once, and watch the memory."""
    body = payload(payload_bytes)
    async with (
        stage() as here,
        instant_gateway(_DELAY) as gateway,
        here.processor(contender, gateway.url, workers=in_flight) as processor,
    ):
        idle = resident_mib(processor.pid)
        await here.lay_aside(rounds * in_flight, body)
        seconds, most = await _watched(here, processor.pid, rounds * in_flight)
        held = (await gateway.stats()).most_held
    row = {
        "workers": in_flight,
        "most in flight": held,
        "idle MiB": idle,
        "most MiB": most,
        "KiB per call": (most - idle) * 1024 / in_flight,
        "seconds": seconds,
        "at best": rounds * _DELAY,
    }
    title = f"Memory: {in_flight:,} calls of {_DELAY:g} s at once, {len(body):,} bytes each"
    return Report(name="memory", title=title, rows=[row])


async def _watched(here: Stage, pid: int, count: int) -> tuple[float, float]:
    """Seconds until all results stand, and the most memory seen meanwhile, in MiB."""
    work = asyncio.create_task(here.work_off(count))
    most = 0.0
    while not work.done():
        most = max(most, resident_mib(pid))
        await asyncio.wait([work], timeout=_LOOK_SECONDS)
    return await work, most
