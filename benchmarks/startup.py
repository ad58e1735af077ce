"""From starting the process until it says that it is ready, with a broker that is there."""

from __future__ import annotations

import compileall
import sys
import time
from pathlib import Path
from statistics import median

import async_processor
from benchmarks.contender import Contender
from benchmarks.gateway import instant_gateway
from benchmarks.processes import running
from benchmarks.report import Report
from benchmarks.stage import stage

_LIBRARIES = "import aiohttp, msgspec, prometheus_client, pydantic, redis.asyncio, uvloop, yaml"


async def startup(contender: Contender, *, turns: int = 7) -> Report:
    """Start it a number of times, by turns with a Python that only imports the libraries.

    Ours is compiled before, as the libraries are: installing does that, unless it is editable.
    """
    compileall.compile_dir(Path(async_processor.__file__).parent, quiet=1)
    ready, imports = [], []
    async with stage() as here, instant_gateway() as gateway:
        for _ in range(turns):
            imports.append(await _seconds_to_import())
            async with here.processor(contender, gateway.url, workers=64) as processor:
                ready.append(processor.ready_after)
    row = {
        "ready after s": median(ready),
        "quickest": min(ready),
        "slowest": max(ready),
        "of it imports of libraries": median(imports),
    }
    title = f"Start: seconds until /readyz answers 200, {turns} starts"
    return Report(name="startup", title=title, rows=[row], aims="aim: <= 0.8 s")


async def _seconds_to_import() -> float:
    start = time.perf_counter()
    async with running([sys.executable, "-c", _LIBRARIES], Path("/dev/null")) as process:
        await process.wait()
    return time.perf_counter() - start
