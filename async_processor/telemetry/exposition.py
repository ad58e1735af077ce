"""`GET /metrics` on the metrics port.

Where requests are traced, whoever accepts OpenMetrics gets it, for the exemplars.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from aiohttp import web
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST

from async_processor.telemetry.metrics import Metrics
from async_processor.telemetry.web import WebServer, guarded

_OPENMETRICS = "application/openmetrics-text"
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Exposed(Protocol):
    """What can be shown in both formats; `traced` says that it has exemplars."""

    @property
    def traced(self) -> bool: ...

    def exposition(self) -> bytes: ...

    def openmetrics(self) -> bytes: ...


def metrics_server(
    metrics: Metrics, *, port: int, bind: str = "", bearer_token: str = ""
) -> WebServer:
    """The server of `/metrics`; with a bearer token only for those who send it."""

    async def current() -> Exposed:
        return metrics

    return exposition_server(current, port=port, bind=bind, bearer_token=bearer_token)


def exposition_server(
    current: Callable[[], Awaitable[Exposed]], *, port: int, bind: str, bearer_token: str
) -> WebServer:
    """Like `metrics_server`, of what has to be asked for first."""

    async def scrape(request: web.Request) -> web.StreamResponse:
        metrics = await current()
        if metrics.traced and _OPENMETRICS in request.headers.get("Accept", ""):
            headers = {"Content-Type": CONTENT_TYPE_LATEST}
            return web.Response(body=metrics.openmetrics(), headers=headers)
        return web.Response(body=metrics.exposition(), headers={"Content-Type": _CONTENT_TYPE})

    routes = {"/metrics": guarded(scrape, bearer_token)}
    return WebServer(routes, port=port, bind=bind, setting="server.metrics_port")
