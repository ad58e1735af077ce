"""Sends calls over HTTP, with aiohttp's connections (see `exchange`).

Why aiohttp: see `benchmarks/http_clients.py`, which measures it beside httpx.

The promises:

* One call, one attempt: redirects are not followed, nothing is sent twice, no cookies are kept.
* The call's timeout spans the whole attempt, from looking up the name to the last byte, so that
  neither a slow connection nor a server that trickles can stretch it.
* Cancelling `send`, and any failure, aborts the connection at once, even with bytes unsent: the
  inference server sees it closed and frees the slot.
* An answer takes no more memory than its limit, however it is compressed.
* Of calls that end at the same moment only a few go on in one turn of the loop.
* Whatever goes wrong comes back as `NoAnswer`; only cancellation is raised.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial
from importlib.metadata import version
from typing import Final

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.streams import StreamReader

from async_processor.clock import Clock
from async_processor.fields import TlsSettings
from async_processor.inference import answer_body, retry_after
from async_processor.inference.answer_body import AnswerTooLarge
from async_processor.inference.base import Answer, Call, Failure, NoAnswer, Reply
from async_processor.inference.exchange import (
    Target,
    abort,
    final_answer,
    write,
    written_in_pieces,
)
from async_processor.inference.failures import FOREIGN, no_answer
from async_processor.inference.tls import client_context
from async_processor.timeouts import Timeouts
from async_processor.turnstile import Turnstile

DROPPED_REASON: Final = "x-llm-d-request-dropped-reason"

_CONNECT_TIMEOUT: Final = 30.0
_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT)
_DNS_TTL: Final = 5
_TARGETS: Final = 1024
_WRITTEN_AT_ONCE: Final = 256 * 1024
"""Bytes of a body; a larger one is written piece by piece as the server reads it, and not buffered
whole."""
_LONGEST_REASON: Final = 256


class HttpEngine:
    """Keeps as many connections alive as were in use at once; the limits are in bytes.

    `connections` bounds them; 0 leaves that to whoever sends, the workers. `header_bytes` bounds
    each line of an answer's head.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        connections: int = 0,
        answer_bytes: int = 64 * 1024 * 1024,
        header_bytes: int = 32 * 1024,
        tls: TlsSettings | None = None,
    ) -> None:
        self._clock = clock
        self._connections = connections
        self._answer_bytes = answer_bytes
        self._header_bytes = header_bytes
        self._tls = tls or TlsSettings()
        self._timeouts = Timeouts()
        self._turns = Turnstile()
        self._connector: aiohttp.TCPConnector | None = None
        self._target = lru_cache(_TARGETS)(partial(Target, usual=_usual_headers()))

    async def start(self) -> None:
        """Raises ConfigurationError when a TLS file cannot be used."""
        if self._connector is None:
            self._connector = aiohttp.TCPConnector(
                ssl=client_context(self._tls), limit=self._connections, ttl_dns_cache=_DNS_TTL
            )

    async def stop(self) -> None:
        connector, self._connector = self._connector, None
        if connector is not None:
            await connector.close()

    async def send(self, call: Call) -> Reply:
        """Make one attempt. Raises nothing but CancelledError."""
        try:
            with self._timeouts.limit(call.timeout) as limit:
                return await self._attempt(call)
        except FOREIGN as error:
            await self._turns.take()
            if limit.expired:
                message = f"{Failure.TIMEOUT}: no answer within {call.timeout:.3g} s"
                return NoAnswer(failure=Failure.TIMEOUT, message=message)
            return no_answer(error)

    async def _attempt(self, call: Call) -> Answer:
        target = self._target(call.url)
        head = target.head(call.headers, len(call.body))
        connection = await self._connected(target)
        protocol = connection.protocol
        assert protocol is not None  # noqa: S101 - it has just been opened
        try:
            answer = await self._exchange(protocol, head, call.body)
        except BaseException:
            abort(protocol)
            raise
        finally:
            connection.release()  # kept only where its answer has been read to the end
        return answer

    async def _connected(self, target: Target) -> Connection:
        if self._connector is None:
            raise RuntimeError("the engine has not been started")
        try:
            return await self._connector.connect(target.request, [], _TIMEOUT)
        except TimeoutError:
            raise TimeoutError(f"no connection within {_CONNECT_TIMEOUT:g} s") from None

    async def _exchange(self, protocol: ResponseHandler, head: bytes, body: bytes) -> Answer:
        protocol.set_response_params(
            read_until_eof=True,
            auto_decompress=False,
            max_line_size=self._header_bytes,
            max_field_size=self._header_bytes,
        )
        if len(body) <= _WRITTEN_AT_ONCE:
            write(protocol, head + body)
            return await self._read(protocol)
        async with written_in_pieces(protocol, head, body):
            return await self._read(protocol)

    async def _read(self, protocol: ResponseHandler) -> Answer:
        message, content = await final_answer(protocol)
        await self._turns.take()
        headers = message.headers
        body = await self._read_body(headers, content)
        return Answer(
            status=message.code,
            body=body,
            retry_after=retry_after.read(
                headers.get("Retry-After"), date=headers.get("Date"), now=self._clock.now()
            ),
            dropped_reason=headers.get(DROPPED_REASON, "")[:_LONGEST_REASON],
        )

    async def _read_body(self, headers: Mapping[str, str], content: StreamReader) -> bytes:
        if int(headers.get("Content-Length", 0)) > self._answer_bytes:
            raise AnswerTooLarge(f"the answer is larger than {self._answer_bytes} bytes")
        body = answer_body.collect(headers.get("Content-Encoding", ""), self._answer_bytes)
        while chunk := await content.readany():
            body.feed(chunk)
        return answer_body.writable(body.whole(), self._answer_bytes)


def _usual_headers() -> Mapping[str, str]:
    return {
        "User-Agent": f"async-processor/{version('async-processor')}",
        "Accept-Encoding": "identity",
    }
