"""An inference gateway that a test looks over: it keeps what came, and answers when told to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from aiohttp import web

_ANSWER = {
    "id": "answer",
    "object": "text_completion",
    "choices": [{"index": 0, "text": "hello", "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}


class Arrival:
    """One call; `answer` ends it."""

    def __init__(self, path: str, headers: Mapping[str, str], body: bytes) -> None:
        self.path = path
        self.headers = headers
        self.body = body
        self.open = True
        self._answered = asyncio.Event()

    @property
    def payload(self) -> Any:
        """The body, of JSON."""
        return json.loads(self.body)

    def answer(self) -> None:
        """Let the call have its answer."""
        self._answered.set()

    async def wait(self) -> None:
        """Return when the call may be answered."""
        await self._answered.wait()


class Gateway:
    """Serves POST on every path. With `hold` calls wait for `Arrival.answer`.

    The first `failures` answers are 503.
    """

    def __init__(self, *, hold: bool = False, failures: int = 0) -> None:
        self.arrivals: list[Arrival] = []
        self.most_open = 0
        """The most calls that were open at once."""
        self._open = 0
        self._hold = hold
        self._failures = failures
        self._runner: web.AppRunner | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def open(self) -> list[Arrival]:
        """Calls without an answer yet, in the order of their arrival."""
        return [arrival for arrival in self.arrivals if arrival.open]

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self._port = int(self._runner.addresses[0][1])
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for arrival in self.arrivals:
            arrival.answer()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.Response:
        arrival = Arrival(request.raw_path, dict(request.headers), await request.read())
        self.arrivals.append(arrival)
        self._open += 1
        self.most_open = max(self.most_open, self._open)
        try:
            if self._hold:
                await arrival.wait()
        finally:
            arrival.open = False
            self._open -= 1
        if len(self.arrivals) <= self._failures:
            return web.json_response({"error": "not now"}, status=503)
        return web.json_response(_ANSWER)
