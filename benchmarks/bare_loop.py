"""What the machine allows: workers that do nothing but call, with the daemon's HTTP library.

    python -m benchmarks.bare_loop URL WORKERS REQUESTS PAYLOAD_BYTES

No queue, no leases, no results, no metrics: aiohttp on uvloop, one session, answers read whole. The
garbage collector is spared as in the daemon, without which 256 workers cost a fifth more.
Prints one JSON object: seconds, and CPU seconds of this process.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from typing import Final

import aiohttp
import msgspec
import uvloop

from benchmarks.messages import payload

HEADERS: Final = {"Content-Type": "application/json"}
_YOUNG_OBJECTS: Final = 10_000


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """What a number of calls took, in seconds."""

    seconds: float
    cpu_seconds: float


async def bare_loop(url: str, workers: int, requests: int, body: bytes) -> Timing:
    """Make so many calls from so many workers; the connections are open before it counts."""
    connector = aiohttp.TCPConnector(limit=workers)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def work(turns: int) -> None:
            for _ in range(turns):
                async with session.post(url, data=body, headers=HEADERS) as response:
                    await response.read()
                    if response.status != 200:
                        raise RuntimeError(f"the server answered {response.status}")

        await asyncio.gather(*(work(2) for _ in range(workers)))
        wall, cpu = time.perf_counter(), time.process_time()
        turns = max(1, requests // workers)
        await asyncio.gather(*(work(turns) for _ in range(workers)))
        share = requests / (turns * workers)  # as if exactly so many had been made
        return Timing(
            seconds=(time.perf_counter() - wall) * share,
            cpu_seconds=(time.process_time() - cpu) * share,
        )


def main(url: str, workers: str, requests: str, payload_bytes: str) -> None:
    body = payload(int(payload_bytes))
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS)
    timing = uvloop.run(bare_loop(url, int(workers), int(requests), body))
    print(msgspec.json.encode(timing).decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
