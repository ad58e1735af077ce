"""Which HTTP client costs least on the way of a request.

    python -m benchmarks http-clients

Each client sends the same small completion request to an instant server (a process of its own, on
the same machine) from a number of concurrent workers, as the daemon does, on uvloop. The figure
that counts is CPU time of the client process per request: that is what the daemon has to share.
"httpx over aiohttp" needs `pip install httpx-aiohttp` and is left out where that is missing.

One run on 2 cores, Python 3.11, aiohttp 3.14, httpx 0.28, httpx-aiohttp 0.2, 5,000 requests each:

| client | workers | requests/s | CPU ms/request |
|---|---|---|---|
| HttpEngine (ours) | 64 | 11898 | 0.083 |
| aiohttp | 64 | 12537 | 0.079 |
| httpx over aiohttp | 64 | 3738 | 0.267 |
| httpx | 64 | 311 | 2.963 |
| HttpEngine (ours) | 256 | 8808 | 0.114 |
| aiohttp | 256 | 9697 | 0.103 |
| httpx over aiohttp | 256 | 3139 | 0.319 |
| httpx | 256 | 234 | 4.152 |

That was with `aiohttp.ClientSession` in our engine. Without it (`inference/exchange.py`), at 256
workers and a load of 25: ours 0.115, aiohttp with its session 0.262 (lower quartiles of 8 turns).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Final

import aiohttp
import httpx

from async_processor.clock import SystemClock
from async_processor.inference.base import Answer, Call
from async_processor.inference.http import HttpEngine
from benchmarks.gateway import instant_gateway
from benchmarks.report import Cell, Report

BODY: Final = b'{"model":"m","prompt":"hello","max_tokens":16}'
HEADERS: Final = {"Content-Type": "application/json", "X-Team": "a"}
Send = Callable[[str], Awaitable[None]]


@asynccontextmanager
async def our_engine(workers: int) -> AsyncIterator[Send]:
    engine = HttpEngine(clock=SystemClock(), connections=workers)
    await engine.start()

    async def send(url: str) -> None:
        reply = await engine.send(Call(url=url, headers=HEADERS, body=BODY, timeout=300.0))
        assert isinstance(reply, Answer)
        assert reply.status == 200

    yield send
    await engine.stop()


@asynccontextmanager
async def bare_aiohttp(workers: int) -> AsyncIterator[Send]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=workers)) as session:

        async def send(url: str) -> None:
            async with session.post(url, data=BODY, headers=HEADERS) as response:
                await response.read()
                assert response.status == 200

        yield send


@asynccontextmanager
async def httpx_over_aiohttp(workers: int) -> AsyncIterator[Send]:
    from httpx_aiohttp import AiohttpTransport  # type: ignore[import-not-found, unused-ignore]

    connector = aiohttp.TCPConnector(limit=workers)
    transport = AiohttpTransport(client=aiohttp.ClientSession(connector=connector))
    async with httpx.AsyncClient(transport=transport, timeout=300) as client:
        yield sending(client)


@asynccontextmanager
async def stock_httpx(workers: int) -> AsyncIterator[Send]:
    limits = httpx.Limits(max_connections=workers, max_keepalive_connections=workers)
    async with httpx.AsyncClient(limits=limits, timeout=300) as client:
        yield sending(client)


def sending(client: httpx.AsyncClient) -> Send:
    async def send(url: str) -> None:
        response = await client.post(url, content=BODY, headers=HEADERS)
        assert response.status_code == 200

    return send


CLIENTS: Final = {
    "HttpEngine (ours)": our_engine,
    "aiohttp": bare_aiohttp,
    "httpx over aiohttp": httpx_over_aiohttp,
    "httpx": stock_httpx,
}


async def load(send: Send, url: str, *, requests: int, workers: int) -> tuple[float, float]:
    """Requests per second, and milliseconds of CPU time per request."""
    left = iter(range(requests))

    async def work() -> None:
        for _ in left:
            await send(url)

    await asyncio.gather(*(send(url) for _ in range(workers)))  # opens the connections
    cpu, wall = time.process_time(), time.perf_counter()
    await asyncio.gather(*(work() for _ in range(workers)))
    return (
        requests / (time.perf_counter() - wall),
        (time.process_time() - cpu) / requests * 1000,
    )


async def http_clients(*, requests: int = 20_000) -> Report:
    """Each client in turn, at 64 and at 256 workers."""
    rows: list[dict[str, Cell]] = []
    async with instant_gateway() as server:
        url = f"{server.url}/v1/completions"
        for workers in (64, 256):
            for name, client in CLIENTS.items():
                if client is httpx_over_aiohttp and find_spec("httpx_aiohttp") is None:
                    continue
                async with client(workers) as send:
                    rate, cpu = await load(send, url, requests=requests, workers=workers)
                rows.append(
                    {"what": name, "workers": workers, "req/s": rate, "CPU ms/request": cpu}
                )
    return Report(name="http-clients", title=f"HTTP clients: {requests:,} calls", rows=rows)
