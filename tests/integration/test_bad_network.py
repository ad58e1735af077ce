"""The network that the fault tests rely on fails as it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from async_processor.testing.eventually import until
from async_processor.testing.proxy import BadNetwork, bad_network

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1024):
        writer.write(data)
    writer.close()


@pytest.fixture
async def network() -> AsyncIterator[BadNetwork]:
    """In front of a server that says everything back."""
    server = await asyncio.start_server(_echo, "127.0.0.1", 0)
    async with server, bad_network(server.sockets[0].getsockname()[1]) as network:
        yield network


@pytest.fixture
async def line(network: BadNetwork) -> AsyncIterator[Streams]:
    reader, writer = await asyncio.open_connection("127.0.0.1", network.port)
    yield reader, writer
    writer.close()


async def test_a_stalled_network_passes_later_what_was_sent(
    network: BadNetwork, line: Streams
) -> None:
    reader, writer = line
    network.stall()
    writer.write(b"late")
    answer = asyncio.create_task(reader.readexactly(4))
    done, _ = await asyncio.wait({answer}, timeout=0.05)
    assert not done
    network.flow()
    assert await answer == b"late"


async def test_a_torn_answer_ends_in_a_reset(network: BadNetwork, line: Streams) -> None:
    reader, writer = line
    network.tear()
    writer.write(b"half")
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await reader.readexactly(4)


async def test_an_answer_is_lost_after_the_request_was_served(
    network: BadNetwork, line: Streams
) -> None:
    reader, writer = line
    network.lose_answer_to(b"doomed")
    writer.write(b"doomed")
    assert await reader.read() == b""
    await until(lambda: network.lost_answers == 1)


async def test_a_healed_network_is_good_again(network: BadNetwork) -> None:
    network.down()
    network.delay = 10
    network.stall()
    network.heal()
    reader, writer = await asyncio.open_connection("127.0.0.1", network.port)
    writer.write(b"well")
    assert await reader.readexactly(4) == b"well"
    writer.close()
