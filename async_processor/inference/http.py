"""Sends calls over HTTP, with aiohttp.

Why aiohttp: see `benchmarks/http_clients.py`, which measures it beside httpx.

The promises:

* One call, one attempt: redirects are not followed, nothing is sent twice, no cookies are kept.
* The call's timeout spans the whole attempt, from looking up the name to the last byte, so that
  neither a slow connection nor a server that trickles can stretch it.
* Cancelling `send`, and any failure, aborts the connection at once, even with bytes unsent: the
  inference server sees it closed and frees the slot.
* An answer takes no more memory than its limit, however it is compressed.
* Whatever goes wrong comes back as `NoAnswer`; only cancellation is raised.
"""

from __future__ import annotations

import asyncio
import io
from importlib.metadata import version
from typing import Final

import aiohttp

from async_processor.clock import Clock
from async_processor.fields import TlsSettings
from async_processor.inference import answer_body, retry_after
from async_processor.inference.answer_body import AnswerTooLarge
from async_processor.inference.base import Answer, Call, Failure, NoAnswer, Reply
from async_processor.inference.failures import FOREIGN, no_answer
from async_processor.inference.tls import client_context

DROPPED_REASON: Final = "x-llm-d-request-dropped-reason"

_CONNECT_TIMEOUT: Final = 30.0
_DNS_TTL: Final = 5
_WRITTEN_AT_ONCE: Final = 256 * 1024
_LONGEST_REASON: Final = 256


class _Response(aiohttp.ClientResponse):
    """Closes by aborting: bytes that the server does not read must not hold the connection."""

    def close(self) -> None:
        connection = self.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()
        super().close()


class HttpEngine:
    """Keeps as many connections alive as were in use at once; the limits are in bytes.

    `connections` bounds them; 0 leaves that to whoever sends, the workers.

    `header_bytes` bounds each line of an answer's head. `trust_env` takes a proxy from the
    environment.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        connections: int = 0,
        answer_bytes: int = 64 * 1024 * 1024,
        header_bytes: int = 32 * 1024,
        tls: TlsSettings | None = None,
        trust_env: bool = False,
    ) -> None:
        self._clock = clock
        self._connections = connections
        self._answer_bytes = answer_bytes
        self._header_bytes = header_bytes
        self._tls = tls or TlsSettings()
        self._trust_env = trust_env
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Raises ConfigurationError when a TLS file cannot be used."""
        if self._session is None:
            self._session = self._open()

    async def stop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _open(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                ssl=client_context(self._tls), limit=self._connections, ttl_dns_cache=_DNS_TTL
            ),
            response_class=_Response,
            headers={
                "User-Agent": f"async-processor/{version('async-processor')}",
                "Accept-Encoding": "identity",
            },
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT),
            auto_decompress=False,
            trust_env=self._trust_env,
            max_line_size=self._header_bytes,
            max_field_size=self._header_bytes,
        )

    async def send(self, call: Call) -> Reply:
        """Make one attempt. Raises nothing but CancelledError."""
        try:
            async with asyncio.timeout(call.timeout) as limit:
                return await self._attempt(call)
        except FOREIGN as error:
            if limit.expired():
                message = f"{Failure.TIMEOUT}: no answer within {call.timeout:.3g} s"
                return NoAnswer(failure=Failure.TIMEOUT, message=message)
            return no_answer(error)

    async def _attempt(self, call: Call) -> Answer:
        if self._session is None:
            raise RuntimeError("the engine has not been started")
        response = await self._session.post(
            call.url, data=_chunked(call.body), headers=call.headers, allow_redirects=False
        )
        try:
            return self._answer(response, await self._read(response))
        finally:
            response.close()  # after the last byte the connection has gone back to the pool

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        if (response.content_length or 0) > self._answer_bytes:
            raise AnswerTooLarge(f"the answer is larger than {self._answer_bytes} bytes")
        encoding = response.headers.get("Content-Encoding", "")
        body = answer_body.collect(encoding, self._answer_bytes)
        while chunk := await response.content.readany():
            body.feed(chunk)
        return answer_body.writable(body.whole(), self._answer_bytes)

    def _answer(self, response: aiohttp.ClientResponse, body: bytes) -> Answer:
        headers = response.headers
        return Answer(
            status=response.status,
            body=body,
            retry_after=retry_after.read(
                headers.get("Retry-After"), date=headers.get("Date"), now=self._clock.now()
            ),
            dropped_reason=headers.get(DROPPED_REASON, "")[:_LONGEST_REASON],
        )


def _chunked(body: bytes) -> bytes | io.BytesIO:
    """A large body is written piece by piece as the server reads it, and not buffered whole."""
    return body if len(body) <= _WRITTEN_AT_ONCE else io.BytesIO(body)
