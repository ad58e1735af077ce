"""The front of a pool of real servers: each call goes to the server with the fewest open calls.

python -m benchmarks.balancer PORT URL [URL ...]
"""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import AsyncIterator, Sequence

import aiohttp
import uvloop
from aiohttp import web


class Balancer:
    """Passes calls and answers on as they come, streams too."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = deque(urls)
        self._open: Counter[str] = Counter()
        self._session: aiohttp.ClientSession | None = None

    def application(self) -> web.Application:
        application = web.Application(
            client_max_size=2**26, handler_args={"handler_cancellation": True}
        )
        application.cleanup_ctx.append(self._connected)
        application.router.add_route("*", "/{path:.*}", self._pass_on)
        return application

    async def _connected(self, _: web.Application) -> AsyncIterator[None]:
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            self._session = session
            yield

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        url = self._least_loaded()
        self._open[url] += 1
        try:
            return await self._call(url, request)
        finally:
            self._open[url] -= 1

    def _least_loaded(self) -> str:
        """Equals take turns."""
        self._urls.rotate(-1)
        return min(self._urls, key=lambda url: self._open[url])

    async def _call(self, url: str, request: web.Request) -> web.StreamResponse:
        if self._session is None:
            raise RuntimeError("not started")
        body, kind = await request.read(), {"Content-Type": request.content_type}
        async with self._session.request(
            request.method, url + request.path, data=body, headers=kind
        ) as answer:
            response = web.StreamResponse(status=answer.status)
            response.content_type = answer.content_type
            await response.prepare(request)
            async for part in answer.content.iter_any():
                await response.write(part)
            await response.write_eof()
            return response


def main(port: str, *urls: str) -> None:
    application = Balancer(urls).application()
    loop = uvloop.new_event_loop()
    web.run_app(application, host="127.0.0.1", port=int(port), loop=loop, print=None)


if __name__ == "__main__":
    main(*sys.argv[1:])
