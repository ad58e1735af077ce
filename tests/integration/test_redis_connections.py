"""Connections are used again, but never one that has ended or leads to the wrong server."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest
import uvloop

from async_processor.errors import BrokerUnavailable
from async_processor.redis_io import raw_connection
from async_processor.redis_io.connect import open_client
from async_processor.redis_io.errors import AnswerLost
from async_processor.redis_io.pooled import PooledClient
from async_processor.testing.eventually import eventually
from async_processor.testing.servers import RedisServer

NOWHERE = ("127.0.0.1", "1")
ON_ITS_WAY = 600.0
MORE_THAN_BUFFERS_HOLD = 30 * 10**6


@pytest.fixture
async def admin(redis_server: RedisServer) -> AsyncIterator[PooledClient]:
    client = open_client(redis_server.url)
    yield client
    await client.close()


@pytest.fixture
async def client(redis_server: RedisServer) -> AsyncIterator[PooledClient]:
    client = open_client(redis_server.url)
    yield client
    await client.close()


async def identity(client: PooledClient) -> int:
    """Which connection is used."""
    return int(await client.execute("CLIENT", "ID"))


async def gone(admin: PooledClient, number: int) -> bool:
    """Whether the server has no such connection any more."""
    listed: bytes = await admin.execute("CLIENT", "LIST", "ID", number)
    return not listed.strip()


async def alone(admin: PooledClient) -> bool:
    """Whether the server has no other connection."""
    listed: bytes = await admin.execute("CLIENT", "LIST")
    return len(listed.splitlines()) == 1


async def busy(admin: PooledClient, command: bytes) -> bool:
    """Whether somebody's command blocks."""
    listed: bytes = await admin.execute("CLIENT", "LIST")
    return b"cmd=" + command in listed


async def blocked(client: PooledClient, admin: PooledClient) -> asyncio.Task[Any]:
    """A command that is under way."""
    task = asyncio.create_task(client.execute("BLPOP", "nothing", 0, wait=ON_ITS_WAY))
    await eventually(lambda: busy(admin, b"blpop"))
    return task


async def test_a_free_connection_is_used_again(client: PooledClient) -> None:
    assert await identity(client) == await identity(client)


async def test_commands_at_the_same_time_have_connections_of_their_own(
    client: PooledClient, admin: PooledClient
) -> None:
    task = await blocked(client, admin)
    assert await client.execute("PING") == b"PONG"
    await admin.execute("RPUSH", "nothing", "x")
    assert await task == [b"nothing", b"x"]


async def test_one_that_the_server_has_closed_meanwhile_harms_nobody(
    client: PooledClient, admin: PooledClient
) -> None:
    first = await identity(client)
    await admin.execute("CLIENT", "KILL", "ID", first)
    await admin.execute("PING")  # by then its end has come here, too
    assert await identity(client) != first


async def test_one_that_ends_under_way_loses_its_answer(
    client: PooledClient, admin: PooledClient
) -> None:
    number = await identity(client)
    task = await blocked(client, admin)
    await admin.execute("CLIENT", "KILL", "ID", number)
    with pytest.raises(AnswerLost, match=r"the connection to Redis at .* was lost"):
        await task
    assert client.outage.away
    assert await client.execute("PING") == b"PONG"
    assert not client.outage.away


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_line_that_has_ended_meanwhile_loses_its_answer(
    run: Callable[[Any], None], redis_server: RedisServer
) -> None:
    """uvloop, on which daemons run, lets nobody write to it then."""

    async def use_it() -> None:
        client = open_client(redis_server.url)
        line, other = await client.line(), await client.line()
        try:
            await other.ask("CLIENT", "KILL", "ID", await line.ask("CLIENT", "ID"))
            with pytest.raises(AnswerLost):
                await line.receive(ON_ITS_WAY)
            await line.send("PING")
            with pytest.raises(AnswerLost, match=r"the connection to Redis at .* was lost"):
                await line.ask("PING")
        finally:
            await client.close()

    run(use_it())


async def test_nobody_gets_the_answer_of_a_command_that_was_cancelled(
    client: PooledClient, admin: PooledClient
) -> None:
    number = await identity(client)
    task = await blocked(client, admin)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await admin.execute("RPUSH", "nothing", "x")
    assert [await client.execute("ECHO", str(count)) for count in range(3)] == [b"0", b"1", b"2"]
    await eventually(partial(gone, admin, number))


async def test_an_error_among_answers_leaves_the_others_where_they_belong(
    client: PooledClient,
) -> None:
    await client.execute("SET", "text", "x")
    with pytest.raises(Exception, match="WRONGTYPE"):
        await client.pipeline([("LPUSH", "text", "a"), ("ECHO", "b")])
    assert await client.execute("ECHO", "c") == b"c"


async def test_a_demoted_master_is_left(client: PooledClient, admin: PooledClient) -> None:
    """Whoever connects again asks Sentinel, or the name's address, anew."""
    numbers = await asyncio.gather(identity(client), identity(client))
    assert len(set(numbers)) == 2
    await admin.execute("REPLICAOF", *NOWHERE)
    try:
        with pytest.raises(BrokerUnavailable, match="READONLY"):
            await client.execute("SET", "key", "value")
        for number in numbers:
            await eventually(partial(gone, admin, number))
    finally:
        await admin.execute("REPLICAOF", "NO", "ONE")
    await client.execute("SET", "key", "value")


async def test_one_that_was_long_unused_is_not_trusted(
    client: PooledClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await identity(client)
    monkeypatch.setattr(raw_connection, "_STALE_SECONDS", 0.0)
    assert await identity(client) != first


async def test_closing_ends_also_what_is_under_way(
    client: PooledClient, admin: PooledClient
) -> None:
    task = await blocked(client, admin)
    await client.close()
    with pytest.raises(AnswerLost):
        await task


async def test_closing_leaves_nothing_open_that_was_about_to_begin(
    client: PooledClient, admin: PooledClient
) -> None:
    task = asyncio.create_task(client.execute("ECHO", "late"))
    await client.close()
    assert await task == b"late"
    await eventually(partial(alone, admin))


async def test_closing_does_not_wait_for_a_server_that_takes_nothing_more(
    redis_server: RedisServer, client: PooledClient
) -> None:
    """A hung server leaves most of a large command unsent."""
    await client.execute("PING")
    os.kill(redis_server.pid, signal.SIGSTOP)
    try:
        task = asyncio.create_task(client.execute("SET", "key", b"x" * MORE_THAN_BUFFERS_HOLD))
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(AnswerLost, match="was lost"):
            await task
    finally:
        os.kill(redis_server.pid, signal.SIGCONT)
