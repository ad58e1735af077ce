"""Real vLLM servers, each a small pool member that saturates easily, and their engines' cores."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import httpx
import msgspec

from async_processor.testing.servers import free_port
from benchmarks.processes import BenchmarkFailed, family, running, tail
from benchmarks.vllm_installation import ENVIRONMENT, Installation

MODEL: Final = "tiny"
_START_SECONDS: Final = 300.0
_LOOK_SECONDS: Final = 0.5
_ENGINE_NICENESS: Final = 10
"""On top of the benchmark's own."""
_NICEST: Final = 19


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """vLLM's options of the same names."""

    max_num_seqs: int = 4
    max_model_len: int = 512
    block_size: int = 32
    num_gpu_blocks_override: int = 49
    max_num_queued_reqs: int | None = None


class _Server(NamedTuple):
    url: str
    process: asyncio.subprocess.Process
    log: Path


@asynccontextmanager
async def vllm_servers(
    installation: Installation, folder: Path, count: int, shape: Shape
) -> AsyncIterator[Sequence[str]]:
    """So many servers, healthy; yields their base URLs."""
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(_started(installation, folder, number, shape))
            for number in range(count)
        ]
        await asyncio.gather(*map(_healthy, servers))
        for number, server in enumerate(servers):
            pin_engine(server.process.pid, core=number % (os.cpu_count() or 1))
        yield [server.url for server in servers]


@asynccontextmanager
async def _started(
    installation: Installation, folder: Path, number: int, shape: Shape
) -> AsyncIterator[_Server]:
    port, log = free_port(), folder / f"vllm-{number}.log"
    command = [str(installation.python), "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", str(installation.model), "--served-model-name", MODEL]
    command += ["--host", "127.0.0.1", "--port", str(port), *_options(shape)]
    command += ["--enforce-eager", "--dtype", "float32", "--no-enable-prefix-caching"]
    async with running(command, log, ENVIRONMENT) as process:
        yield _Server(f"http://127.0.0.1:{port}", process, log)


def _options(shape: Shape) -> list[str]:
    return [
        part
        for name, number in msgspec.structs.asdict(shape).items()
        if number is not None
        for part in (f"--{name.replace('_', '-')}", str(number))
    ]


async def _healthy(server: _Server) -> None:
    deadline = time.monotonic() + _START_SECONDS
    async with httpx.AsyncClient() as client:
        while True:
            try:
                if (await client.get(f"{server.url}/health")).is_success:
                    return
            except httpx.TransportError:
                pass  # it does not listen yet
            if server.process.returncode is not None or time.monotonic() > deadline:
                raise BenchmarkFailed(f"vLLM did not start:\n{tail(server.log)}")
            await asyncio.sleep(_LOOK_SECONDS)


def pin_engine(server: int, *, core: int) -> None:
    """Keep an engine to one core, and let everybody else go before it.

    An engine takes all it gets, and would starve its own API server on a machine with few cores,
    which no engine on a GPU does.
    """
    niceness = min(os.getpriority(os.PRIO_PROCESS, 0) + _ENGINE_NICENESS, _NICEST)
    for pid in family(server):
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        if name.startswith("VLLM::"):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                os.sched_setaffinity(int(thread.name), {core})
                os.setpriority(os.PRIO_PROCESS, int(thread.name), niceness)
