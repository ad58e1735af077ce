"""One request and its answer over a connection of aiohttp's connector.

What finds names, opens, keeps and closes connections, and what reads answers, is aiohttp's. Left
out is its `ClientSession`: redirects, cookies, middlewares and traces, of which a call here uses
none, take more than half of a call's CPU time (`benchmarks/http_clients.py`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import chain
from typing import Final

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import RawResponseMessage, StreamWriter
from aiohttp.streams import StreamReader
from yarl import URL

PIECE: Final = 64 * 1024
"""Bytes of a large body that are written at once."""

_PROVISIONAL: Final = frozenset(range(100, 200)) - {101}
"""Statuses before the answer; 101 switches protocols, and nothing that HTTP knows follows it."""
_UNWRITABLE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class Target:
    """Where the calls of one URL go, and what their heads have in common.

    Raises:
        aiohttp.InvalidURL: the URL has no host, or another scheme than http and https.
        ValueError: it is no URL.
    """

    def __init__(self, url: str, usual: Mapping[str, str]) -> None:
        parsed = URL(url)
        if parsed.scheme not in ("http", "https"):
            raise aiohttp.NonHttpUrlClientError(parsed)
        loop = asyncio.get_running_loop()
        self.request = aiohttp.ClientRequest("POST", parsed, headers=usual, loop=loop)
        """What aiohttp's connector takes for the name of a connection."""
        headers = self.request.headers
        self._first = f"POST {parsed.raw_path_qs} HTTP/1.1\r\n"
        self._usual = {name.lower(): (name, headers[name]) for name in headers}
        del self._usual["content-length"]
        self._usual_lines = _lines(dict(self._usual.values()))

    def head(self, headers: Mapping[str, str], length: int) -> bytes:
        """The head of a request whose body has so many bytes; `headers` replace the usual ones.

        Raises:
            ValueError: a header cannot be written, or contradicts the URL's credentials.
        """
        own = f"{self._first}{self._usual_without(headers)}{_lines(headers)}"
        return f"{own}Content-Length: {length}\r\n\r\n".encode()

    def _usual_without(self, headers: Mapping[str, str]) -> str:
        if self._usual.keys().isdisjoint(map(str.lower, headers)):
            return self._usual_lines
        replaced = self._usual.keys() & map(str.lower, headers)
        if "authorization" in replaced:
            raise ValueError("both the URL and a header hold credentials")
        return _lines(dict(self._usual[name] for name in self._usual if name not in replaced))


def _lines(headers: Mapping[str, str]) -> str:
    if _UNWRITABLE.search("".join(chain.from_iterable(headers.items()))):
        raise ValueError("a header has control characters")
    return "".join([f"{name}: {value}\r\n" for name, value in headers.items()])


def write(protocol: ResponseHandler, data: bytes) -> None:
    """Write a whole request.

    Raises ClientConnectionResetError when the connection is gone, or the server said something
    that it was not asked (a proxy's 408, an answer twice): from then on each request would be given
    the answer of another one.
    """
    if protocol.transport is None:
        raise aiohttp.ClientConnectionResetError("the connection was lost before the request")
    if protocol.should_close:
        raise aiohttp.ClientConnectionResetError("the server answered before it was asked")
    protocol.transport.write(data)


@asynccontextmanager
async def written_in_pieces(
    protocol: ResponseHandler, head: bytes, body: bytes
) -> AsyncIterator[None]:
    """Write a request while its answer is read: the server may answer before it has read all."""
    write(protocol, head)
    writing = asyncio.create_task(_write_pieces(protocol, memoryview(body)))
    try:
        yield
    finally:
        if not writing.done():
            writing.cancel()
            abort(protocol)
        # Whatever went wrong with it has ended the reading, too.
        await asyncio.gather(writing, return_exceptions=True)


async def _write_pieces(protocol: ResponseHandler, body: memoryview) -> None:
    writer = StreamWriter(protocol, asyncio.get_running_loop())
    for start in range(0, len(body), PIECE):
        await writer.write(body[start : start + PIECE], LIMIT=PIECE - 1)


async def final_answer(protocol: ResponseHandler) -> tuple[RawResponseMessage, StreamReader]:
    """The head of the answer, and its body as it comes; what is only provisional is passed over."""
    while True:
        message, content = await protocol.read()
        if message.code not in _PROVISIONAL:
            return message, content


def abort(protocol: ResponseHandler) -> None:
    """Close at once: bytes that the server does not read must not hold the connection."""
    protocol.force_close()
    if protocol.transport is not None:
        protocol.transport.abort()
