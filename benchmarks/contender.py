"""The processor under test: any command that speaks the contract.

Its command line, and the text of its configuration file if it has one, may hold these names:

    {python}         this Python            {config}         the path of the configuration file
    {broker}         redis://host:port/0    {broker_address} host:port
    {gateway}        http://host:port       {workers}        how many calls at a time
    {queue}          the sorted set         {results}        the result list
    {health_port}    /readyz answers here   {metrics_port}   for /metrics

Nothing else is assumed of it, but that it answers GET /readyz with 200 when it is ready.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from async_processor.testing.servers import free_port
from benchmarks.messages import QUEUE, RESULTS
from benchmarks.processes import BenchmarkFailed, running, tail

OUR_COMMAND: Final = "{python} -m async_processor run --config {config}"
_OUR_TRANSPORT: Final = """\
transport:
  type: redis-sortedset
  url: {broker}
  result_queue_name: {results}
  queues:
"""
_OUR_QUEUE: Final = """\
    - queue_name: %s
      igw_base_url: {gateway}
      gate: {gate}
"""
_OUR_REST: Final = """\
worker_pools:
  - {id: default, workers: {workers}}
server: {bind: 127.0.0.1, health_port: {health_port}, metrics_port: {metrics_port}}
"""
WITH_PROMETHEUS: Final = 'prometheus: {url: "{gateway}", cache_ttl: 1s}\n'
"""For a gate that asks the instant server."""
CLOSED: Final = '{type: prometheus-query, query: "0"}'
"""A gate that is closed."""

_READY_SECONDS: Final = 120.0
_ANSWER_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.005


def our_configuration(*, more_queues: int = 0, gate: str = "{type: constant}") -> str:
    """The daemon's configuration, all else by default; `more_queues` stay empty."""
    queues = ["{queue}", *(f"empty-{number}" for number in range(more_queues))]
    entries = (_OUR_QUEUE.replace("{gate}", gate) % queue for queue in queues)
    return _OUR_TRANSPORT + "".join(entries) + _OUR_REST


class Contender(msgspec.Struct, frozen=True, kw_only=True):
    """How to start it; the configuration is the text of a file."""

    command: str = OUR_COMMAND
    configuration: str = our_configuration()


class Running:
    """It runs and was ready `ready_after` seconds after its start."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path, ready_after: float) -> None:
        self.pid = process.pid
        self.ready_after = ready_after
        self._process = process
        self._log = log

    def check(self) -> None:
        """Raise BenchmarkFailed when it has ended."""
        if self._process.returncode is not None:
            raise BenchmarkFailed(_ended(self._process.returncode, self._log))

    def log(self) -> str:
        """The end of what it has logged."""
        return tail(self._log)


@asynccontextmanager
async def started(
    contender: Contender, folder: Path, *, broker: str, gateway: str, workers: int
) -> AsyncIterator[Running]:
    """Start it and wait until it is ready; it is ended at the end."""
    health_port, config, log = free_port(), folder / "config", folder / "processor.log"
    names = {
        "python": sys.executable,
        "config": str(config),
        "broker": broker,
        "broker_address": broker.removeprefix("redis://").partition("/")[0],
        "gateway": gateway,
        "workers": str(workers),
        "queue": QUEUE,
        "results": RESULTS,
        "health_port": str(health_port),
        "metrics_port": str(free_port()),
    }
    config.write_text(_filled(contender.configuration, names))
    command = [_filled(part, names) for part in shlex.split(contender.command)]
    start = time.perf_counter()
    async with running(command, log) as process:
        await _ready(process, health_port, log)
        yield Running(process, log, time.perf_counter() - start)


def _filled(text: str, names: Mapping[str, str]) -> str:
    """Other braces stay as they are: the text may be YAML or JSON."""
    for name, value in names.items():
        text = text.replace(f"{{{name}}}", value)
    return text


async def _ready(process: asyncio.subprocess.Process, port: int, log: Path) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while not await _says_ready(port):
        if process.returncode is not None:
            raise BenchmarkFailed(_ended(process.returncode, log))
        if time.monotonic() > deadline:
            wanted = f"answer GET /readyz on port {port} with 200 within {_READY_SECONDS:g} s"
            raise BenchmarkFailed(f"the processor did not {wanted}:\n{tail(log)}")
        await asyncio.sleep(_LOOK_SECONDS)


def _ended(code: int, log: Path) -> str:
    return f"the processor ended with {code}:\n{tail(log)}"


async def _says_ready(port: int) -> bool:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    try:
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        async with asyncio.timeout(_ANSWER_SECONDS):
            return b" 200 " in await reader.readline()
    except OSError:  # a TimeoutError is one, too
        return False
    finally:
        writer.close()
