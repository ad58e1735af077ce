"""A TCP proxy that plays a bad network: answers get lost, bytes stop, connections break."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

_CHUNK: Final = 64 * 1024
_RESET_AT_CLOSE: Final = struct.pack("ii", 1, 0)

Look = Callable[[bytes], bytes]
"""What is to be passed on of a piece; less than all of it breaks the connection."""


class BadNetwork:
    """Stands between a client and a server on this machine; made by `bad_network`.

    `delay` is in seconds, for every piece in either direction.
    """

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._broken = asyncio.Event()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._marker = b""
        self._tearing = False
        self._is_up = True
        self.delay = 0.0
        self.lost_answers = 0

    @property
    def port(self) -> int:
        """Where clients are to connect."""
        if self._listener is None:
            raise RuntimeError("the proxy does not run")
        port: int = self._listener.sockets[0].getsockname()[1]
        return port

    def lose_answer_to(self, marker: bytes) -> None:
        """The next request that contains `marker` is executed, and its answer never arrives."""
        self._marker = marker

    def tear(self) -> None:
        """Of the next piece that comes back only the first half arrives, and then a reset."""
        self._tearing = True

    def stall(self) -> None:
        """Let no byte pass until `flow`; nobody sees that the other side is gone (half-open)."""
        self._flowing.clear()

    def flow(self) -> None:
        """Let bytes pass again, those that waited first."""
        self._flowing.set()

    def down(self) -> None:
        """Break all connections, and let nobody connect until `up`."""
        self._is_up = False
        self.cut()

    def up(self) -> None:
        """Let clients connect again."""
        self._is_up = True

    def lead_to(self, server_port: int) -> None:
        """Let another server be behind it, as an address moves in a failover."""
        self._server_port = server_port
        self.cut()

    def cut(self) -> None:
        """Break all connections; new ones are possible."""
        broken, self._broken = self._broken, asyncio.Event()
        broken.set()

    def heal(self) -> None:
        """Be a good network again; what is broken stays broken."""
        self._marker, self._tearing, self.delay = b"", False, 0.0
        self.up()
        self.flow()

    async def start(self) -> None:
        """Begin to listen."""
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def stop(self) -> None:
        """Break everything and listen no more."""
        if self._listener is not None:
            self._listener.close()
        self.cut()
        await asyncio.gather(*self._connections)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        task.add_done_callback(lambda _: writer.close())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_up:
            # An error of one side closes the other: that is all there is to do about it.
            with contextlib.suppress(OSError):
                await self._connect(reader, writer)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        broken = self._broken
        answers, requests = await asyncio.open_connection("127.0.0.1", self._server_port)
        doomed = asyncio.Event()
        there = asyncio.create_task(
            self._pump(reader, requests, lambda data: self._request(data, doomed))
        )
        back = asyncio.create_task(
            self._pump(answers, writer, lambda data: self._answer(data, writer, doomed))
        )
        end = asyncio.create_task(broken.wait())
        await asyncio.wait({there, back, end}, return_when=asyncio.FIRST_COMPLETED)
        self.lost_answers += doomed.is_set()
        for task in (there, back, end):
            task.cancel()
        await asyncio.gather(there, back, end, return_exceptions=True)
        requests.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, look: Look
    ) -> None:
        while data := await reader.read(_CHUNK):
            if self.delay:
                await asyncio.sleep(self.delay)
            await self._flowing.wait()
            passed = look(data)
            writer.write(passed)
            await writer.drain()
            if len(passed) < len(data):
                return

    def _request(self, data: bytes, doomed: asyncio.Event) -> bytes:
        if self._marker and self._marker in data:
            self._marker = b""
            doomed.set()
        return data

    def _answer(self, data: bytes, writer: asyncio.StreamWriter, doomed: asyncio.Event) -> bytes:
        if doomed.is_set():
            return b""
        if not self._tearing:
            return data
        self._tearing = False
        client: socket.socket = writer.get_extra_info("socket")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
        return data[: len(data) // 2]


@asynccontextmanager
async def bad_network(server_port: int) -> AsyncIterator[BadNetwork]:
    """A proxy in front of a server, good until told otherwise."""
    network = BadNetwork(server_port)
    await network.start()
    try:
        yield network
    finally:
        await network.stop()
