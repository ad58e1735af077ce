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


@asynccontextmanager
async def counted(port: int) -> AsyncIterator[Counter[str]]:
    """Counts commands by name, those of scripts left out, until the block ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=_LONGEST_LINE)
    writer.write(b"MONITOR\r\n")
    await reader.readline()
    counts: Counter[str] = Counter()
    task = asyncio.create_task(_count(reader, counts))
    try:
        yield counts
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        writer.close()


async def _count(reader: asyncio.StreamReader, counts: Counter[str]) -> None:
    while line := await reader.readline():
        found = _LINE.match(line)
        if found and found["client"] != _FROM_A_SCRIPT:
            counts[found["name"].decode().upper()] += 1
