"""The simulated pool as a process of its own, and what its metrics pages say."""

from __future__ import annotations

import asyncio
import secrets
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from async_processor.sim.engine import EngineSettings
from async_processor.sim.flow_control import Mode
from benchmarks.processes import BenchmarkFailed, running

NAME: Final = "sim"
_START_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.05
_OPTIONS: Final = {"num_gpu_blocks": "num-gpu-blocks-override"}


class PoolUrls(msgspec.Struct, frozen=True, kw_only=True):
    """Where it is: the router, the pods, and the metrics of both."""

    url: str
    metrics_url: str
    pod_urls: Sequence[str]
    pod_metrics_urls: Sequence[str]


@asynccontextmanager
async def simulated_pool(
    folder: Path, *, pods: int, engine: EngineSettings, flow_control: Mode = Mode.OFF
) -> AsyncIterator[PoolUrls]:
    """It serves on free ports and is ended at the end."""
    command = [sys.executable, "-m", "async_processor", "simulate-pool", "--json"]
    command += ["--port", "0", "--pod-port-base", "0", "--name", NAME]
    command += ["--pods", str(pods), "--flow-control", flow_control.value, *_options(engine)]
    log = folder / f"pool-{secrets.token_hex(4)}.log"
    async with running(command, log) as process:
        deadline = time.monotonic() + _START_SECONDS
        while not (said := log.read_bytes()).endswith(b"\n"):
            if process.returncode is not None or time.monotonic() > deadline:
                raise BenchmarkFailed(f"the simulated pool did not start: {said.decode()}")
            await asyncio.sleep(_LOOK_SECONDS)
        yield msgspec.json.decode(said, type=PoolUrls)


def _options(engine: EngineSettings) -> list[str]:
    numbers: Mapping[str, int | float | None] = msgspec.structs.asdict(engine)
    return [
        part
        for name, number in numbers.items()
        if number is not None
        for part in (f"--{_OPTIONS.get(name, name).replace('_', '-')}", str(number))
    ]
