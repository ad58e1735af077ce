"""Which commands a broker gets from outside, counted while it works.

INFO commandstats counts what runs inside scripts, too, and cannot tell the two apart. MONITOR
can; it slows the broker down, so commands are counted in a run of their own.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

_LINE: Final = re.compile(rb'^\+[\d.]+ \[\d+ (?P<client>[^\]]+)\] "(?P<name>[^"]+)"')
_LONGEST_LINE: Final = 64 * 1024 * 1024
_FROM_A_SCRIPT: Final = b"lua"
_END: Final = b"benchmark-counts-to-here"


@asynccontextmanager
async def counted(port: int) -> AsyncIterator[Counter[str]]:
    """Counts commands by name, those of scripts left out, until the block ends.

    The counts are whole after it: MONITOR tells late what a busy broker has done.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=_LONGEST_LINE)
    writer.write(b"MONITOR\r\n")
    await reader.readline()
    counts: Counter[str] = Counter()
    task = asyncio.create_task(_count(reader, counts))
    try:
        yield counts
        await _mark_the_end(port)
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        writer.close()


async def _mark_the_end(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"ECHO %b\r\n" % _END)
    await reader.readline()
    writer.close()


async def _count(reader: asyncio.StreamReader, counts: Counter[str]) -> None:
    while line := await reader.readline():
        if _END in line:
            return
        found = _LINE.match(line)
        if found and found["client"] != _FROM_A_SCRIPT:
            counts[found["name"].decode().upper()] += 1
