"""A small HTTP server on one port: a table of routes, and an end that waits for nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage

Respond = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
Routes = Mapping[tuple[str, str], Respond]

_LARGEST_BODY = 256 * 1024 * 1024
_BACKLOG = 4096
_CLEANUP_SECONDS = 0.1


def json_response(body: bytes, status: int = 200) -> web.Response:
    """An answer of one JSON object."""
    return web.Response(body=body, status=status, content_type="application/json")


class HttpServer:
    """Serves `routes`, keyed by method and path. A client that goes away ends its request."""

    def __init__(self, routes: Routes, *, host: str, port: int) -> None:
        self._routes = routes
        self._host = host
        self._port = port
        self._runner: web.ServerRunner | None = None
        self._busy: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """The base URL; the port is known once the server has started."""
        return f"http://{self._host}:{self._port}"

    async def start(self) -> None:
        """Bind and listen; raises OSError when the port is taken."""
        server = web.Server(
            self._respond,
            request_factory=_roomy_request,
            handler_cancellation=True,
            access_log=None,
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=_CLEANUP_SECONDS)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port, backlog=_BACKLOG).start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close the port and every connection, whatever it is doing."""
        runner, self._runner = self._runner, None
        if runner is None:
            return
        for site in runner.sites:
            await site.stop()
        await self._cut_off()
        await runner.cleanup()

    async def _cut_off(self) -> None:
        busy = tuple(self._busy)
        for task in busy:
            task.cancel()
        await asyncio.gather(*busy, return_exceptions=True)

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        respond = self._routes.get((request.method, request.path), _not_found)
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in a task
        self._busy.add(task)
        try:
            return await respond(request)
        finally:
            self._busy.discard(task)


def _roomy_request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: web.RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(
        message, payload, protocol, writer, task, loop, client_max_size=_LARGEST_BODY
    )


async def _not_found(_: web.BaseRequest) -> web.StreamResponse:
    return json_response(b'{"detail":"Not Found"}', status=404)
