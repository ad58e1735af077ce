"""The tests' own Pub/Sub server in its own process: `python -m benchmarks.pubsub_server PORT`."""

from __future__ import annotations

import asyncio
import sys

import uvloop

from async_processor.testing.pubsub_fake import PubSubFake


async def serve(port: int) -> None:
    """Serve until the process is ended."""
    async with PubSubFake(port=port):
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
