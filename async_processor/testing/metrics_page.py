"""A page that says what a test wants it to say, on a real port."""

from __future__ import annotations

import asyncio
from typing import Self

from aiohttp import web


class MetricsPage:
    """Answers every path with the same answer, and counts how often it was asked.

    `text` is a page in Prometheus' format; `set` replaces it by a single series. `delay` is in
    seconds, `location` where a redirect leads.
    """

    def __init__(self, text: str = "") -> None:
        self.text = text
        self.status = 200
        self.content_type = "text/plain"
        self.delay = 0.0
        self.location = ""
        self.paths: list[str] = []
        self.authorization: str | None = None
        self._runner: web.AppRunner | None = None
        self._port = 0

    @property
    def target(self) -> str:
        """host:port."""
        return f"127.0.0.1:{self._port}"

    @property
    def asked(self) -> int:
        """How often."""
        return len(self.paths)

    @property
    def url(self) -> str:
        """The page itself."""
        return f"http://{self.target}/metrics"

    def set(self, series: str, value: float) -> None:
        """Show one series and nothing else."""
        self.text = f"{series} {value}\n"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen, on the same port as before if there was one."""
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Listen no more; connections that are open are closed."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _answer(self, request: web.Request) -> web.Response:
        self.paths.append(request.path)
        self.authorization = request.headers.get("authorization")
        await asyncio.sleep(self.delay)
        return web.Response(
            text=self.text,
            status=self.status,
            content_type=self.content_type,
            headers={"location": self.location} if self.location else None,
        )
