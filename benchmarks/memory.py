"""Memory of the processor: with many calls in flight, a long backlog, large requests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from benchmarks.contender import Contender
from benchmarks.gateway import instant_gateway
from benchmarks.messages import payload
from benchmarks.processes import resident_mib
from benchmarks.report import Cell, Report
from benchmarks.stage import Stage, stage

_LOOK_SECONDS: Final = 0.05
_PATIENCE: Final = 300.0


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """So many workers before a backlog, and a server that takes `delay` seconds for a call.

    It ends with the first `results` results; by default when the whole backlog is worked off.
    """

    workers: int
    backlog: int
    payload_bytes: int = 4096
    delay: float = 3.0
    results: int = 0


def held(calls: int) -> Sequence[Scene]:
    """Twice as many requests as fit at once; a call takes long enough for all to be in flight."""
    return [Scene(workers=calls, backlog=2 * calls)]


LIMITS: Final = (
    Scene(workers=64, backlog=1_000_000, payload_bytes=200, delay=0, results=20_000),
    Scene(workers=10_000, backlog=10_000, delay=60),
    Scene(workers=64, backlog=1000, payload_bytes=2**20, delay=0.5),
    Scene(workers=1000, backlog=1000, payload_bytes=2**20, delay=60),
)
"""What is promised to be bounded by slots and sizes, whatever lies in the queue."""


async def memory(contender: Contender, scenes: Sequence[Scene], *, name: str) -> Report:
    """Play each scene with a new processor, and watch its memory."""
    return Report(
        name=name,
        title="Memory of one process, by what it has to do",
        rows=[await _played(contender, scene) for scene in scenes],
    )


async def _played(contender: Contender, scene: Scene) -> dict[str, Cell]:
    body = payload(scene.payload_bytes)
    async with (
        stage() as here,
        instant_gateway(scene.delay) as gateway,
        here.processor(contender, gateway.url, workers=scene.workers) as processor,
    ):
        idle = resident_mib(processor.pid)
        await here.lay_aside(scene.backlog, body)
        seconds, most = await _watched(here, processor.pid, scene.results or scene.backlog)
        most_held = (await gateway.stats()).most_held
    return {
        "workers": scene.workers,
        "backlog": scene.backlog,
        "bytes each": len(body),
        "most in flight": most_held if scene.delay else "",
        "idle MiB": idle,
        "most MiB": most,
        "KiB per worker": (most - idle) * 1024 / scene.workers,
        "seconds": seconds,
    }


async def _watched(here: Stage, pid: int, count: int) -> tuple[float, float]:
    """Seconds until that many results stand, and the most memory seen meanwhile, in MiB."""
    work = asyncio.create_task(here.work_off(count, patience=_PATIENCE))
    most = 0.0
    while not work.done():
        most = max(most, resident_mib(pid))
        await asyncio.wait([work], timeout=_LOOK_SECONDS)
    return await work, most
