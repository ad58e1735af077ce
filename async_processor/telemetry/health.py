"""`GET /healthz`, `/readyz` and `/status` on the health port.

Alive means that the loop answers. Ready means that the daemon has started, is not draining, and
reaches its broker; the broker is asked at most once a second, whoever asks, and for at most 3 s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
from aiohttp import web

from async_processor.clock import Clock
from async_processor.errors import BrokerRefused, BrokerUnavailable
from async_processor.telemetry.masking import mask_url, one_line
from async_processor.telemetry.web import WebServer, guarded

Serving = Callable[[], bool]
Ping = Callable[[], Awaitable[None]]
Status = Callable[[], Awaitable[Mapping[str, Any]]]

_PING_TIMEOUT: Final = 3.0
_REMEMBERED: Final = 1.0


class BrokerProbe:
    """Whether the broker answers, asked at most once a second.

    `ping` returns when it does and raises BrokerUnavailable (or BrokerRefused) when it does not.
    """

    def __init__(self, ping: Ping, clock: Clock, timeout: float = _PING_TIMEOUT) -> None:
        self._ping = ping
        self._clock = clock
        self._timeout = timeout
        self._asking = asyncio.Lock()
        self._asked_at = -_REMEMBERED
        self._error = ""

    async def error(self) -> str:
        """Why the broker cannot be reached, without secrets; empty when it can."""
        async with self._asking:
            if self._clock.monotonic() - self._asked_at >= _REMEMBERED:
                self._error = await self._ask()
                self._asked_at = self._clock.monotonic()
        return self._error

    async def _ask(self) -> str:
        try:
            async with asyncio.timeout(self._timeout):
                await self._ping()
        except TimeoutError:
            return f"the broker did not answer within {self._timeout:g} s"
        except (BrokerUnavailable, BrokerRefused) as error:
            return one_line(mask_url(str(error)))
        return ""


def health_server(
    *,
    serving: Serving,
    ping: Ping,
    status: Status,
    clock: Clock,
    port: int,
    bind: str = "",
    bearer_token: str = "",
    patience: float = _PING_TIMEOUT,
) -> WebServer:
    """The server of the health routes.

    `serving` is False before start-up ends and while draining. `status` gives what `/status`
    shows besides `ready`, which says the same as `/readyz`; only that route asks for the bearer
    token, since probes send none. The ping may take `patience` seconds.
    """
    probe = BrokerProbe(ping, clock, patience)

    async def healthz(_request: web.Request) -> web.StreamResponse:
        return _json({"status": "ok"})

    async def readyz(_request: web.Request) -> web.StreamResponse:
        if error := await probe.error():
            return _json({"status": "not ready", "error": error}, 503)
        return _json({"status": "ready"}) if serving() else _json({"status": "not ready"}, 503)

    async def show_status(_request: web.Request) -> web.StreamResponse:
        error, shown = await asyncio.gather(probe.error(), status())
        return _json({"ready": serving() and not error, **shown})

    routes = {
        "/healthz": healthz,
        "/readyz": readyz,
        "/status": guarded(show_status, bearer_token),
    }
    return WebServer(routes, port=port, bind=bind, setting="server.health_port")


def _json(content: Mapping[str, Any], status: int = 200) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(content), status=status, content_type="application/json"
    )
