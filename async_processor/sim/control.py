"""The simulator's own endpoints, on every port: what was called, and which faults are on."""

from __future__ import annotations

import msgspec
from aiohttp import web

from async_processor.sim.faults import FaultPanel
from async_processor.sim.http_server import Routes, json_response
from async_processor.sim.ledger import Ledger


class Control:
    """`GET` and `DELETE /ledger`; `GET`, `POST` and `DELETE /faults`."""

    def __init__(self, ledger: Ledger, faults: FaultPanel) -> None:
        self._ledger = ledger
        self._faults = faults

    def routes(self) -> Routes:
        return {
            ("GET", "/ledger"): self._show_ledger,
            ("DELETE", "/ledger"): self._clear_ledger,
            ("GET", "/faults"): self._show_faults,
            ("POST", "/faults"): self._turn_faults,
            ("DELETE", "/faults"): self._clear_faults,
        }

    async def _show_ledger(self, _: web.BaseRequest) -> web.StreamResponse:
        return json_response(msgspec.json.encode(self._ledger.as_dict()))

    async def _clear_ledger(self, request: web.BaseRequest) -> web.StreamResponse:
        self._ledger.clear()
        return await self._show_ledger(request)

    async def _show_faults(self, _: web.BaseRequest) -> web.StreamResponse:
        return json_response(msgspec.json.encode({"pods": self._faults.as_list()}))

    async def _turn_faults(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        try:
            self._faults.update(msgspec.json.decode(body, type=dict))
        except (ValueError, UnicodeDecodeError) as error:
            return json_response(msgspec.json.encode({"error": str(error)}), status=400)
        return await self._show_faults(request)

    async def _clear_faults(self, request: web.BaseRequest) -> web.StreamResponse:
        self._faults.clear()
        return await self._show_faults(request)
