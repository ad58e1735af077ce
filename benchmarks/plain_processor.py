"""Another processor, the simplest that speaks the contract: to measure the harness by, and a floor.

    python -m benchmarks.plain_processor BROKER GATEWAY WORKERS HEALTH_PORT

Each worker pops a request, makes the call and pushes the result. It has no leases, so that what it
holds when it is killed is lost; no gates, no retries, no metrics.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final, cast

import aiohttp
import msgspec
import redis.asyncio
import uvloop

from benchmarks.messages import QUEUE, RESULTS

_READY: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_HEADERS: Final = {"Content-Type": "application/json"}


class _Data(msgspec.Struct):
    id: str
    payload: msgspec.Raw


class _Message(msgspec.Struct):
    data: _Data


async def _work(broker: redis.asyncio.Redis, session: aiohttp.ClientSession, url: str) -> None:
    while True:
        popped = await broker.bzpopmin(QUEUE)
        _, member, _ = cast("tuple[bytes, bytes, float]", popped)
        request = msgspec.json.decode(member, type=_Message).data
        async with session.post(url, data=bytes(request.payload), headers=_HEADERS) as answer:
            payload = await answer.text()
        result = {"id": request.id, "status_code": answer.status, "payload": payload}
        await broker.lpush(RESULTS, msgspec.json.encode(result))


async def _say_ready(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readline()
    writer.write(_READY)
    await writer.drain()
    writer.close()


async def serve(broker_url: str, gateway: str, workers: int, health_port: int) -> None:
    """Run until cancelled."""
    broker = redis.asyncio.Redis.from_url(
        broker_url, socket_timeout=None, max_connections=workers + 1
    )
    connector = aiohttp.TCPConnector(limit=workers)
    async with broker, aiohttp.ClientSession(connector=connector) as session:
        await broker.ping()
        await asyncio.start_server(_say_ready, "127.0.0.1", health_port)
        url = f"{gateway}/v1/completions"
        await asyncio.gather(*(_work(broker, session, url) for _ in range(workers)))


def main(broker: str, gateway: str, workers: str, health_port: str) -> None:
    uvloop.run(serve(broker, gateway, int(workers), int(health_port)))


if __name__ == "__main__":
    main(*sys.argv[1:])
