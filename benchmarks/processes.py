"""Child processes of a benchmark, and what they use: CPU time and memory, from /proc."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

MEBIBYTE = 1024 * 1024
_LOG_TAIL = 3000


class BenchmarkFailed(Exception):
    """A process did not do what is measured; the message says which, and ends with its log."""


@asynccontextmanager
async def running(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that is ended at the end; its output goes to `log`.

    Raises BenchmarkFailed when it cannot be started.
    """
    with log.open("ab") as output:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **(environment or {})},
            )
        except OSError as error:
            raise BenchmarkFailed(f"{command[0]!r} cannot be started: {error}") from None
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(10):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def output_of(*module_and_arguments: str) -> bytes:
    """Run `python -m ...` to its end; returns what it printed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", *module_and_arguments, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await process.communicate()
    if process.returncode:
        raise BenchmarkFailed(f"{module_and_arguments[0]} ended with {process.returncode}")
    return printed


def tail(log: Path) -> str:
    """The end of what a process has said."""
    return log.read_text(errors="replace")[-_LOG_TAIL:]


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and of its children so far."""
    ticks = sum(sum(map(int, _stat(each)[11:13])) for each in family(pid))
    return ticks / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> float:
    """Memory of a process and of its children that is in RAM now, in MiB."""
    pages = sum(int(_stat(each)[21]) for each in family(pid))
    return pages * os.sysconf("SC_PAGE_SIZE") / MEBIBYTE


def peak_mib(pid: int) -> float:
    """The most memory that a process and its children have had in RAM so far, in MiB each."""
    return sum(_kibibytes(each, "VmHWM") for each in family(pid)) / 1024


def _kibibytes(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def _stat(pid: int) -> list[str]:
    """The fields after the name, which may hold anything."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def family(pid: int) -> list[int]:
    """A process, its children and theirs."""
    members, new = [pid], [pid]
    while new:
        children = Path(f"/proc/{new[0]}/task/{new[0]}/children")
        new = [*new[1:], *map(int, children.read_text().split())]
        members += [each for each in new if each not in members]
    return members
