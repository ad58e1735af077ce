"""A small HTTP server for operators: a few GET routes on one port."""

from __future__ import annotations

import errno
import hmac
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from async_processor.errors import ConfigurationError, Problem

Route = Callable[[web.Request], Awaitable[web.StreamResponse]]


class WebServer:
    """Serves `routes` (path to function) while started.

    `port` 0 takes a free one, which `port` then tells. `bind` is an address; empty means all.
    `setting` is the configuration path that an error about the port names.
    """

    def __init__(
        self, routes: Mapping[str, Route], *, port: int, bind: str = "", setting: str
    ) -> None:
        self._routes = routes
        self._port = port
        self._bind = bind
        self._setting = setting
        self._runner: web.AppRunner | None = None

    @property
    def port(self) -> int:
        """The port that is listened on; the configured one before the start."""
        addresses = self._runner.addresses if self._runner else []
        return int(addresses[0][1]) if addresses else self._port

    async def start(self) -> None:
        """Listen. Raises ConfigurationError when the port or the address cannot be had."""
        if self._runner is not None:
            return
        app = web.Application()
        app.add_routes([web.get(path, route) for path, route in self._routes.items()])
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._bind or None, self._port).start()
        except OSError as error:
            await self.stop()
            raise ConfigurationError([self._problem(error)]) from error

    async def stop(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    def _problem(self, error: OSError) -> Problem:
        if error.errno == errno.EADDRINUSE:
            fault = "is in use; stop what listens there or choose another port"
        elif error.errno == errno.EACCES:
            fault = "may not be used by this user; choose a port above 1023"
        else:
            fault = f"cannot be listened on at {self._bind!r}: {error.strerror or error}"
        return Problem(path=self._setting, message=f"port {self._port} {fault}")


def guarded(route: Route, bearer_token: str) -> Route:
    """The route for those who send the bearer token; an empty token guards nothing."""
    if not bearer_token:
        return route
    expected = f"Bearer {bearer_token}".encode()

    async def checked(request: web.Request) -> web.StreamResponse:
        sent = request.headers.get("Authorization", "").encode(errors="surrogateescape")
        if not hmac.compare_digest(sent, expected):
            return web.Response(status=401, headers={"WWW-Authenticate": "Bearer"})
        return await route(request)

    return checked
