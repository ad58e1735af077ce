"""An inference server that costs next to nothing, so that the client is what is measured.

    python -m benchmarks.instant_server PORT [DELAY]

It answers every POST at once, or after DELAY seconds, with a completion that says when the call
arrived (`arrived`, seconds of the machine's monotonic clock, which all processes share). GET
/stats tells how many calls it has seen, how many it holds, and how many it held at most.
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


class Stats(msgspec.Struct):
    """The calls so far; written by the protocols of this process."""

    calls: int = 0
    held: int = 0
    most_held: int = 0


def answer(body: bytes) -> bytes:
    """A whole HTTP answer."""
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
        len(body),
        body,
    )


class InstantServer(asyncio.Protocol):
    """One connection; reads just enough HTTP to know where a request ends."""

    def __init__(self, delay: float, stats: Stats) -> None:
        self._delay = delay
        self._stats = stats
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass of it

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := _request_end(self._received)) is not None:
            asks_stats = self._received.startswith(b"GET")
            self._received = self._received[end:]
            if asks_stats:
                self._transport.write(answer(msgspec.json.encode(self._stats)))
            else:
                self._called()

    def _called(self) -> None:
        body = (
            b'{"choices":[{"text":"hi"}],"usage":{"prompt_tokens":1,"completion_tokens":1},'
            b'"arrived":%.6f}' % time.monotonic()
        )
        stats = self._stats
        stats.calls += 1
        if not self._delay:
            self._transport.write(answer(body))
            return
        stats.held += 1
        stats.most_held = max(stats.most_held, stats.held)
        asyncio.get_running_loop().call_later(self._delay, self._let_go, answer(body))

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


async def serve(port: int, delay: float) -> None:
    """Serve until cancelled."""
    stats = Stats()
    server = await asyncio.get_running_loop().create_server(
        lambda: InstantServer(delay, stats), "127.0.0.1", port, backlog=8192
    )
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.0))
