"""The daemon's own command, with one task more in its loop that notes when the loop was busy.

    python -m benchmarks.stall_watch NOTES run --config FILE

The task wants to run every few milliseconds. By how much it comes late is how long the loop has
been held up; how much of it the process has had the CPU for is what it has to answer for itself,
for on a busy machine others hold it up, too. NOTES is written at the end.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

import msgspec

from async_processor.cli import loop
from async_processor.cli.main import main as command_line

_EVERY: Final = 0.005
_WORTH_NOTING: Final = 0.01


class Stall(msgspec.Struct, frozen=True, kw_only=True):
    """The loop came back at the monotonic time `at`; all in seconds."""

    at: float
    held_up: float
    busy: float


def stalls_noted(notes: Path) -> list[Stall]:
    """What a daemon that has ended has noted."""
    return msgspec.json.decode(notes.read_bytes(), type=list[Stall])


async def _watch(stalls: list[Stall]) -> None:
    while True:
        due, used = time.monotonic() + _EVERY, time.thread_time()
        await asyncio.sleep(_EVERY)
        now = time.monotonic()
        if (held_up := now - due) > _WORTH_NOTING:
            busy = min(held_up, time.thread_time() - used)
            stalls.append(Stall(at=now, held_up=held_up, busy=busy))


async def _watched(work: Coroutine[Any, Any, Any], stalls: list[Stall]) -> Any:
    watch = asyncio.create_task(_watch(stalls))
    try:
        return await work
    finally:
        watch.cancel()


def main(notes: str) -> None:
    stalls: list[Stall] = []
    run = loop.run
    loop.run = lambda work: run(_watched(work, stalls))
    try:
        command_line()
    finally:
        Path(notes).write_bytes(msgspec.json.encode(stalls))


if __name__ == "__main__":
    main(sys.argv.pop(1))
