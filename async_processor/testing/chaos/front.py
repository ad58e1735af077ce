"""The inference server of a trial: a simulated pool that keeps every execution in the ledger."""

from __future__ import annotations

from typing import Any, Final, Self

import msgspec
from aiohttp import web

from async_processor.sim.faults import Faults
from async_processor.sim.http_server import HttpServer
from async_processor.sim.pool import SimulatedPool
from async_processor.testing.chaos.ledger import Ledger

REPLICA_HEADER: Final = "x-replica"


class _Body(msgspec.Struct):
    user: str = ""


class Front:
    """Serves completions. `latency` is in seconds, `refusals` the share answered with 503.

    It can be closed and opened again on the same port.
    """

    def __init__(self, ledger: Ledger, *, latency: float, refusals: float, seed: int) -> None:
        self._usual = Faults(error=refusals, error_status=503)
        self._pod = SimulatedPool(latency=latency, faults=self._usual, seed=seed).pods[0]
        self._ledger = ledger
        self._server = HttpServer(
            {("POST", "/v1/completions"): self._complete}, host="127.0.0.1", port=0
        )

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.url.rpartition(":")[2])

    def spoil(self, **switches: Any) -> None:
        """Turn the pool's fault switches until `calm`."""
        self._pod.faults.set(**switches)

    def calm(self) -> None:
        """Nothing but the usual refusals."""
        self._pod.faults.now = self._usual

    async def open(self) -> None:
        """Begin to listen."""
        await self._server.start()

    async def close(self) -> None:
        """Refuse every connection, and cut those that are."""
        await self._server.stop()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _complete(self, request: web.BaseRequest) -> web.StreamResponse:
        body = msgspec.json.decode(await request.read(), type=_Body)
        with self._ledger.execution(body.user, request.headers.get(REPLICA_HEADER, "?")) as call:
            call.in_bad_days = self._pod.faults.now is not self._usual
            response = await self._pod.complete(request)
            if isinstance(response, web.Response):  # any other is sent already, and spoiled
                call.status = response.status
            return response
