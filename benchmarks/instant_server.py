"""An inference server that costs next to nothing, so that the client is what is measured.

    python -m benchmarks.instant_server PORT [DELAY [FAILURES]]

It answers every POST at once, or after DELAY seconds, with a completion that says when the call
arrived (`arrived`, seconds of the machine's monotonic clock, which all processes share). The first
FAILURES calls get a 503. GET /stats tells how many calls it has seen, how many it holds, and how
many it held at most. It is a Prometheus, too, that knows expressions of one number.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Final, cast

import msgspec
import uvloop

_END_OF_HEAD: Final = b"\r\n\r\n"
_LENGTH: Final = b"content-length:"
_QUERY: Final = "/api/v1/query?query="


class Stats(msgspec.Struct):
    """The calls so far; written by the protocols of this process."""

    calls: int = 0
    held: int = 0
    most_held: int = 0


def answer(body: bytes, status: bytes = b"200 OK") -> bytes:
    """A whole HTTP answer."""
    head = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % (status, len(body)) + body


_FAILURE: Final = answer(b'{"error":"not yet"}', b"503 Service Unavailable")


def _completion() -> bytes:
    return answer(
        b'{"choices":[{"text":"hi"}],"usage":{"prompt_tokens":1,"completion_tokens":1},'
        b'"arrived":%.6f}' % time.monotonic()
    )


def _scalar(number: str) -> bytes:
    data = {"resultType": "scalar", "result": [time.time(), number]}
    return msgspec.json.encode({"status": "success", "data": data})


class InstantServer(asyncio.Protocol):
    """One connection; reads just enough HTTP to know where a request ends."""

    def __init__(self, delay: float, failures: int, stats: Stats) -> None:
        self._delay = delay
        self._failures = failures
        self._stats = stats
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass of it

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := _request_end(self._received)) is not None:
            target = self._received.split(b" ", 2)[1] if self._received.startswith(b"GET") else b""
            self._received = self._received[end:]
            if target:
                self._transport.write(answer(self._told(target)))
            else:
                self._called()

    def _told(self, target: bytes) -> bytes:
        _, asks, expression = target.decode().partition(_QUERY)
        return _scalar(expression) if asks else msgspec.json.encode(self._stats)

    def _called(self) -> None:
        stats = self._stats
        stats.calls += 1
        whole = _FAILURE if stats.calls <= self._failures else _completion()
        if not self._delay:
            self._transport.write(whole)
            return
        stats.held += 1
        stats.most_held = max(stats.most_held, stats.held)
        asyncio.get_running_loop().call_later(self._delay, self._let_go, whole)

    def _let_go(self, whole: bytes) -> None:
        self._stats.held -= 1
        self._transport.write(whole)


def _request_end(received: bytes) -> int | None:
    """Where the first request ends; None while it is not all there."""
    head = received.find(_END_OF_HEAD)
    if head < 0:
        return None
    end = head + len(_END_OF_HEAD) + _content_length(received[:head].lower())
    return end if len(received) >= end else None


def _content_length(head: bytes) -> int:
    _, found, rest = head.partition(_LENGTH)
    return int(rest.partition(b"\r\n")[0]) if found else 0


async def serve(port: int, delay: float = 0.0, failures: int = 0) -> None:
    """Serve until cancelled."""
    stats = Stats()
    server = await asyncio.get_running_loop().create_server(
        lambda: InstantServer(delay, failures, stats), "127.0.0.1", port, backlog=8192
    )
    await server.serve_forever()


def main(port: str, delay: str = "0", failures: str = "0") -> None:
    uvloop.run(serve(int(port), float(delay), int(failures)))


if __name__ == "__main__":
    main(*sys.argv[1:])
