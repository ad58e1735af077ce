"""What a fault does to one call: instead of its answer, or to the bytes of it."""

from __future__ import annotations

import asyncio
import gzip
import socket
import struct
from functools import cache
from typing import NoReturn

from aiohttp import web

from async_processor.clock import Clock
from async_processor.sim import answers
from async_processor.sim.faults import Fault, Faults
from async_processor.sim.http_server import json_response

_PAGE = b"<html><body><h1>upstream connect error</h1></body></html>"
_UNPACKED = 128 * 10**6
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)


async def instead(
    request: web.BaseRequest, fault: Fault | None, faults: Faults
) -> web.StreamResponse | None:
    """The answer that a fault gives at once, if it is of that kind."""
    if fault is Fault.HANG:
        await _hang()
    if fault is Fault.RESET:
        await _reset(request)
    if fault is Fault.ERROR:
        status = faults.error_status
        return json_response(answers.error("simulated fault", "FaultError", status), status)
    if fault is Fault.THROTTLE:
        return too_many_requests(faults.retry_after)
    return None


def too_many_requests(retry_after: float | None, *, reason: str = "") -> web.Response:
    """429; with `Retry-After` in seconds, and the reason for which llm-d's router drops."""
    response = json_response(answers.error("Too Many Requests", "TooManyRequests", 429), 429)
    if retry_after is not None:
        response.headers["Retry-After"] = f"{retry_after:g}"
    if reason:
        response.headers["x-llm-d-request-dropped-reason"] = reason
    return response


async def spoiled(
    request: web.BaseRequest,
    body: bytes,
    content_type: str,
    fault: Fault,
    *,
    trickle_seconds: float,
    clock: Clock,
) -> web.StreamResponse:
    """Send a finished answer as the fault would have it."""
    if fault is Fault.NOT_JSON:
        return web.Response(body=_PAGE, content_type=content_type)
    if fault is Fault.BOMB:
        headers = {"Content-Encoding": "gzip"}
        return web.Response(body=_bomb(), content_type=content_type, headers=headers)
    promised = len(body) + 1024 if fault is Fault.WRONG_LENGTH else len(body)
    response = web.StreamResponse(headers={"Content-Type": content_type})
    response.content_length = promised
    response.force_close()
    await response.prepare(request)
    match fault:
        case Fault.RESET_MID_ANSWER:
            await response.write(body[: len(body) // 2])
            await _reset(request)
        case Fault.TRICKLE:
            await _trickle(response, body, trickle_seconds, clock)
        case _:
            await response.write(body)
    return response


@cache
def _bomb() -> bytes:
    return gzip.compress(bytes(_UNPACKED), compresslevel=1)


async def _trickle(response: web.StreamResponse, body: bytes, seconds: float, clock: Clock) -> None:
    for position in range(len(body)):
        await response.write(body[position : position + 1])
        await clock.sleep(seconds)


async def _hang() -> NoReturn:
    """Until the client gives up, or the server stops: both cancel the request."""
    while True:
        await asyncio.Event().wait()


async def _reset(request: web.BaseRequest) -> NoReturn:
    """Close with RST instead of FIN, as a killed peer does; losing the connection cancels us."""
    transport = request.transport
    if transport is not None:
        peer = transport.get_extra_info("socket")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
        transport.abort()
    await _hang()
