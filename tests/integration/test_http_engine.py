"""The HTTP engine against a real server that misbehaves in every way a network can.

Proves that each fault comes back as the right failure, that nothing stretches a call's timeout,
that an answer's memory is bounded, and that cancelling closes the connection for the server.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import os
import socket
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import uvloop

from async_processor.clock import SystemClock
from async_processor.inference.base import Answer, Call, Failure, NoAnswer, Reply
from async_processor.inference.http import HttpEngine
from async_processor.lifecycle import FEW
from async_processor.testing.eventually import until

Conversation = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Server:
    """Speaks bytes: reads a request, then does what the test's conversation says."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections = 0
        self.closed = asyncio.Event()
        """Set when a client has closed its connection."""

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._conversation(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except asyncio.CancelledError:
            pass  # the test is over
        finally:
            self._tasks.discard(task)
            self.closed.set()
            writer.transport.abort()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def stop(self) -> None:
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def read_request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length")
    )
    return head, await reader.readexactly(length)


def answering(*parts: bytes) -> Conversation:
    """Reads one request, writes the parts, and hangs up."""

    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        for part in parts:
            writer.write(part)
            await writer.drain()
        writer.close()

    return conversation


async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """Takes the request and answers nothing until the client hangs up."""
    await read_request(reader)
    await reader.read()


@asynccontextmanager
async def serving(conversation: Conversation) -> AsyncIterator[tuple[Server, str]]:
    server = Server(conversation)
    listener = await asyncio.start_server(server.talk, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    try:
        yield server, f"http://127.0.0.1:{port}/v1/completions"
    finally:
        for _ in range(5):  # turns in which the last connections are accepted and become tasks
            await asyncio.sleep(0)
        listener.close()
        await server.stop()


@pytest.fixture
async def engine() -> AsyncIterator[HttpEngine]:
    engine = HttpEngine(clock=SystemClock(), connections=4, answer_bytes=100_000)
    await engine.start()
    yield engine
    await engine.stop()


def call(
    url: str,
    *,
    body: bytes = b'{"model":"m"}',
    timeout: float = 30.0,
    headers: Mapping[str, str] | None = None,
) -> Call:
    return Call(url=url, headers=headers or {}, body=body, timeout=timeout)


async def ask(engine: HttpEngine, conversation: Conversation, *, timeout: float = 30.0) -> Reply:
    async with serving(conversation) as (_, url):
        return await engine.send(call(url, timeout=timeout))


def failure(reply: Reply) -> Failure:
    assert isinstance(reply, NoAnswer), reply
    return reply.failure


def answer(reply: Reply) -> Answer:
    assert isinstance(reply, Answer), reply
    return reply


def http(status: str, body: bytes = b"", *headers: str) -> bytes:
    head = "".join(f"{line}\r\n" for line in (*headers, f"Content-Length: {len(body)}"))
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body


async def test_sends_what_the_call_says_and_reads_the_answer(engine: HttpEngine) -> None:
    seen: list[tuple[bytes, bytes]] = []

    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await read_request(reader))
        writer.write(
            http("429 Too Many", b"busy", "Retry-After: 7", "X-LLM-D-Request-Dropped-Reason: full")
        )
        await reader.read()

    async with serving(conversation) as (_, url):
        reply = answer(await engine.send(call(url, headers={"X-Team": "a"})))
    head, body = seen[0]
    assert head.startswith(b"POST /v1/completions HTTP/1.1\r\n")
    assert b"X-Team: a\r\n" in head
    assert b"Accept-Encoding: identity\r\n" in head
    assert body == b'{"model":"m"}'
    assert (reply.status, reply.body, reply.retry_after) == (429, b"busy", 7.0)
    assert reply.dropped_reason == "full"


async def test_connections_are_kept_and_used_again(engine: HttpEngine) -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            writer.write(OK)

    async with serving(conversation) as (server, url):
        for _ in range(5):
            assert answer(await engine.send(call(url))).body == b"{}"
        assert server.connections == 1


async def test_a_large_request_arrives_whole(engine: HttpEngine) -> None:
    sizes: list[int] = []

    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sizes.append(len((await read_request(reader))[1]))
        writer.write(OK)
        await reader.read()

    async with serving(conversation) as (_, url):
        assert answer(await engine.send(call(url, body=b"x" * 5_000_000))).status == 200
    assert sizes == [5_000_000]


async def test_a_large_request_may_be_answered_before_it_was_read(engine: HttpEngine) -> None:
    """The answer counts, and the rest is not sent: the connection is closed, not used again."""

    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(http("413 Content Too Large", b"too large"))
        await writer.drain()
        await server.closed.wait()

    async with serving(conversation) as (server, url):
        large = call(url, body=b"x" * 64_000_000)
        sending = asyncio.create_task(engine.send(large))
        try:
            assert answer(await sending).body == b"too large"
        finally:
            server.closed.set()
        assert answer(await ask(engine, answering(OK))).status == 200


async def test_headers_of_the_call_replace_the_usual_ones_in_any_case(engine: HttpEngine) -> None:
    heads: list[bytes] = []

    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            heads.append((await read_request(reader))[0])
            writer.write(OK)

    async with serving(conversation) as (_, url):
        await engine.send(call(url))
        await engine.send(call(url, headers={"user-AGENT": "me", "HOST": "elsewhere"}))
    usual, replaced = (head.lower().split(b"\r\n") for head in heads)
    assert [line for line in usual if line.startswith(b"user-agent: async-processor/")]
    assert b"host: " + url.split("/")[2].encode() in usual
    assert {line for line in replaced if line.startswith((b"user-agent", b"host"))} == {
        b"user-agent: me",
        b"host: elsewhere",
    }


async def test_credentials_of_the_url_are_sent_as_a_header(engine: HttpEngine) -> None:
    heads: list[bytes] = []

    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await read_request(reader))[0])
        writer.write(OK)

    async with serving(conversation) as (_, url):
        await engine.send(call(url.replace("//", "//user:pass@")))
    assert b"Authorization: Basic dXNlcjpwYXNz\r\n" in heads[0]
    assert b"Host: user" not in heads[0]


async def test_paths_are_escaped_and_queries_sent(engine: HttpEngine) -> None:
    heads: list[bytes] = []

    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await read_request(reader))[0])
        writer.write(OK)

    async with serving(conversation) as (_, url):
        await engine.send(call(f"{url}/ü x?a=b c#fragment"))
    assert heads[0].startswith(b"POST /v1/completions/%C3%BC%20x?a=b+c HTTP/1.1\r\n")


async def test_provisional_answers_are_passed_over(engine: HttpEngine) -> None:
    early = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    assert answer(await ask(engine, answering(early, OK))).body == b"{}"


async def test_a_switch_of_protocols_is_an_answer_and_ends_the_connection(
    engine: HttpEngine,
) -> None:
    switched = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
    assert answer(await ask(engine, answering(switched))).status == 101
    assert answer(await ask(engine, answering(OK))).status == 200


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
async def test_answers_without_a_body(engine: HttpEngine, status: str) -> None:
    reply = answer(await ask(engine, answering(f"HTTP/1.1 {status}\r\n\r\n".encode())))
    assert (str(reply.status), reply.body) == (status[:3], b"")


async def test_a_connection_that_the_server_ends_with_its_answer_is_not_used_again(
    engine: HttpEngine,
) -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(http("200 OK", b"{}", "Connection: close"))
        await reader.read()

    async with serving(conversation) as (server, url):
        for _ in range(3):
            assert answer(await engine.send(call(url))).body == b"{}"
        assert server.connections == 3


async def test_redirects_are_not_followed(engine: HttpEngine) -> None:
    moved = http("307 Temporary Redirect", b"", "Location: http://127.0.0.1:1/")
    assert answer(await ask(engine, answering(moved))).status == 307


async def test_cookies_are_not_kept(engine: HttpEngine) -> None:
    heads: list[bytes] = []

    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            heads.append((await read_request(reader))[0])
            writer.write(http("200 OK", b"{}", "Set-Cookie: a=b; Path=/"))

    async with serving(conversation) as (_, url):
        await engine.send(call(url))
        await engine.send(call(url))
    assert len(heads) == 2
    assert b"cookie" not in heads[1].lower()


async def test_a_proxy_in_the_environment_is_ignored(
    engine: HttpEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert answer(await ask(engine, answering(OK))).status == 200


async def test_refused(engine: HttpEngine) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound and not listening: nobody else gets the port
        port = unused.getsockname()[1]
        reply = await engine.send(call(f"http://127.0.0.1:{port}/"))
    assert failure(reply) is Failure.REFUSED


async def test_unknown_name(engine: HttpEngine) -> None:
    reply = await engine.send(call("http://no-such-host.invalid/"))
    assert failure(reply) is Failure.DNS


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param([], Failure.RESET, id="hangs up without a word"),
        pytest.param([b"HTTP/1.1 200 OK\r\nConte"], Failure.RESET, id="hangs up in the head"),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhal"],
            Failure.BROKEN_BODY,
            id="body shorter than its length",
        ),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhal"],
            Failure.BROKEN_BODY,
            id="chunk cut off",
        ),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n"],
            Failure.BROKEN_BODY,
            id="chunk size is nonsense",
        ),
        pytest.param([b"SSH-2.0-OpenSSH\r\n"], Failure.BROKEN_BODY, id="not HTTP"),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n"],
            Failure.BROKEN_BODY,
            id="endless header",
        ),
        pytest.param(
            [http("200 OK", b"not gzip at all", "Content-Encoding: gzip")],
            Failure.BROKEN_BODY,
            id="not what its encoding says",
        ),
        pytest.param(
            [http("200 OK", gzip.compress(b"{}" * 500)[:-9], "Content-Encoding: gzip")],
            Failure.BROKEN_BODY,
            id="gzip without an end",
        ),
        pytest.param(
            [http("200 OK", b"{}", "Content-Encoding: br")],
            Failure.BROKEN_BODY,
            id="encoding nobody asked for",
        ),
        pytest.param([http("200 OK", b"x" * 100_001)], Failure.TOO_LARGE, id="huge by its length"),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 300_000], Failure.TOO_LARGE, id="huge until the end"
        ),
        pytest.param(
            [http("200 OK", gzip.compress(bytes(200_000_000), 1), "Content-Encoding: gzip")],
            Failure.TOO_LARGE,
            id="gzip bomb",
        ),
        pytest.param(
            [http("200 OK", gzip.compress(bytes(99_000)), "Content-Encoding: gzip")],
            Failure.TOO_LARGE,
            id="huge in a result",
        ),
    ],
)
async def test_broken_answers(engine: HttpEngine, parts: list[bytes], expected: Failure) -> None:
    assert failure(await ask(engine, answering(*parts))) is expected


async def test_reset_mid_body(engine: HttpEngine) -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhal")
        await writer.drain()
        linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()

    reply = await ask(engine, conversation)
    assert failure(reply) in (Failure.RESET, Failure.BROKEN_BODY)
    assert isinstance(reply, NoAnswer)
    assert reply.transient


async def test_a_kept_connection_that_the_server_closes_as_we_write_is_a_reset(
    engine: HttpEngine,
) -> None:
    """The server answers once and hangs up on the second request without a word."""

    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK)
        await read_request(reader)

    async with serving(conversation) as (server, url):
        assert answer(await engine.send(call(url))).status == 200
        assert failure(await engine.send(call(url))) is Failure.RESET
        assert server.connections == 1  # nothing was sent twice


@pytest.mark.parametrize(
    "stray",
    [
        pytest.param(http("408 Request Timeout", b"late"), id="whole"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nlate", id="part"),
    ],
)
async def test_what_a_server_says_unasked_is_no_answer_to_the_next_call(
    engine: HttpEngine, stray: bytes
) -> None:
    """Otherwise every later call on this connection had the answer of the one before."""
    come = asyncio.Event()

    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, body = await read_request(reader)
        writer.write(http("200 OK", body))
        await come.wait()
        writer.write(stray)
        while True:
            _, body = await read_request(reader)
            writer.write(http("200 OK", body))

    async with serving(conversation) as (server, url):
        assert answer(await engine.send(call(url, body=b"1"))).body == b"1"
        come.set()
        await until(lambda: _said_unasked(engine))
        assert failure(await engine.send(call(url, body=b"2"))) is Failure.RESET
        assert answer(await engine.send(call(url, body=b"3"))).body == b"3"
        assert server.connections == 2


def _said_unasked(engine: HttpEngine) -> bool:
    """Whether something has come on a kept connection, which only aiohttp knows."""
    assert engine._connector is not None
    kept = [protocol for each in engine._connector._conns.values() for protocol, _ in each]
    return any(protocol.should_close for protocol in kept)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param((gzip.compress(b"hello"), "gzip"), id="gzip"),
        pytest.param((gzip.compress(b"hel") + gzip.compress(b"lo"), "gzip"), id="two members"),
        pytest.param((zlib.compress(b"hello"), "deflate"), id="deflate"),
        pytest.param((zlib.compress(b"hello", wbits=-15), "deflate"), id="raw deflate"),
        pytest.param((b"hello", "identity"), id="identity"),
    ],
)
async def test_compressed_answers_are_understood(
    engine: HttpEngine, body: tuple[bytes, str]
) -> None:
    content, encoding = body
    # Fed byte by byte, so that every cut between pieces occurs.
    whole = http("200 OK", content, f"Content-Encoding: {encoding}")
    parts = [whole[i : i + 1] for i in range(len(whole))]
    assert answer(await ask(engine, answering(*parts))).body == b"hello"


async def test_an_answer_of_exactly_the_limit_passes(engine: HttpEngine) -> None:
    assert len(answer(await ask(engine, answering(http("200 OK", b"x" * 100_000)))).body) == 100_000


async def test_a_silent_server_times_out_and_sees_the_connection_closed(
    engine: HttpEngine,
) -> None:
    async with serving(silent) as (server, url):
        assert failure(await engine.send(call(url, timeout=1.0))) is Failure.TIMEOUT
        await asyncio.wait_for(server.closed.wait(), 60)


async def test_a_trickling_server_cannot_stretch_the_timeout(engine: HttpEngine) -> None:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    started = asyncio.get_running_loop().time()
    assert failure(await ask(engine, conversation, timeout=0.3)) is Failure.TIMEOUT
    assert asyncio.get_running_loop().time() - started < 10  # the trickle takes 20 s


async def test_no_time_left_is_a_timeout(engine: HttpEngine) -> None:
    assert failure(await ask(engine, silent, timeout=0.0)) is Failure.TIMEOUT


async def test_cancelling_closes_the_connection_at_once(engine: HttpEngine) -> None:
    asked = asyncio.Event()

    async def conversation(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        asked.set()
        await reader.read()

    async with serving(conversation) as (server, url):
        sending = asyncio.create_task(engine.send(call(url)))
        await asyncio.wait_for(asked.wait(), 60)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await asyncio.wait_for(server.closed.wait(), 60)


async def test_cancelling_in_the_middle_of_the_answer_closes_the_connection(
    engine: HttpEngine,
) -> None:
    begun = asyncio.Event()

    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nx")
        await writer.drain()
        begun.set()
        await reader.read()

    async with serving(conversation) as (server, url):
        sending = asyncio.create_task(engine.send(call(url)))
        await asyncio.wait_for(begun.wait(), 60)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await asyncio.wait_for(server.closed.wait(), 60)


async def cancelled_while_the_server_reads_nothing() -> None:
    """What is unsent must not keep the connection open until the server reads it."""
    connected, over = asyncio.Event(), asyncio.Event()

    async def conversation(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        connected.set()
        await over.wait()

    engine = HttpEngine(clock=SystemClock(), connections=1)
    await engine.start()
    async with serving(conversation) as (_, url):
        before = open_files()
        sending = asyncio.create_task(engine.send(call(url, body=b"x" * 64_000_000)))
        await asyncio.wait_for(connected.wait(), 60)
        await asyncio.sleep(0.1)  # lets the body fill every buffer; too short only weakens the test
        assert open_files() == before + 2  # the connection's two ends
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        for _ in range(5):
            await asyncio.sleep(0)
        assert open_files() == before + 1  # the server's end, which has seen nothing yet
        over.set()
    await engine.stop()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - no need for paths


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc to count open files")
@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_cancelling_does_not_wait_for_a_server_that_reads_nothing(
    run: Callable[[Coroutine[None, None, None]], None],
) -> None:
    run(cancelled_while_the_server_reads_nothing())


async def test_a_failed_call_leaves_the_pool_usable(engine: HttpEngine) -> None:
    """More failures than there are connections, then a success: nothing leaks."""
    for _ in range(6):
        assert failure(await ask(engine, silent, timeout=0.05)) is Failure.TIMEOUT
    assert answer(await ask(engine, answering(OK))).status == 200


@pytest.mark.parametrize("last_words", [OK, b""])
async def test_calls_that_end_together_go_on_a_few_at_a_time(last_words: bytes) -> None:
    """All are answered, or cut off, at the same moment; the loop is not theirs alone meanwhile."""
    engine, asked, now = HttpEngine(clock=SystemClock()), asyncio.Semaphore(0), asyncio.Event()
    ended = 0

    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        asked.release()
        await now.wait()
        writer.write(last_words)
        writer.close()

    async def send(url: str) -> None:
        nonlocal ended
        await engine.send(call(url))
        ended += 1

    await engine.start()
    async with serving(conversation) as (_, url):
        calls = [asyncio.create_task(send(url)) for _ in range(8 * FEW)]
        for _ in calls:
            await asked.acquire()
        now.set()
        most = before = 0
        while before < len(calls):
            await asyncio.sleep(0)
            most, before = max(most, ended - before), ended
    await engine.stop()
    assert most <= 2 * FEW


@pytest.mark.parametrize(
    ("url", "headers"),
    [
        ("ftp://host/file", {}),
        ("not a url", {}),
        ("http://host:99999/", {}),
        ("http://user:hunter2@127.0.0.1:1/", {"Authorization": "Bearer hunter2"}),
    ],
)
async def test_what_cannot_be_sent_is_not_retried(
    engine: HttpEngine, url: str, headers: dict[str, str]
) -> None:
    reply = await engine.send(call(url, headers=headers))
    assert failure(reply) is Failure.UNSENDABLE
    assert isinstance(reply, NoAnswer)
    assert not reply.transient
    assert "hunter2" not in reply.message


async def test_a_header_that_cannot_be_written_is_not_sent(engine: HttpEngine) -> None:
    forged = {"X-A": "a\r\nX-Evil: b"}
    async with serving(silent) as (_, url):
        assert failure(await engine.send(call(url, headers=forged))) is Failure.UNSENDABLE


async def test_messages_hold_no_credentials(engine: HttpEngine) -> None:
    reply = await engine.send(call("http://user:hunter2@no-such-host.invalid/"))
    assert isinstance(reply, NoAnswer)
    assert "hunter2" not in reply.message
    reply = await engine.send(call("http://user:hunter2@bad host/"))
    assert isinstance(reply, NoAnswer)
    assert "hunter2" not in reply.message


async def test_nothing_is_left_to_the_loop_to_complain_about(
    engine: HttpEngine, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, logger="asyncio"):
        async with serving(silent) as (_, url):
            replies = await asyncio.gather(*(engine.send(call(url, timeout=0.1)) for _ in range(8)))
        await engine.stop()
    assert {failure(reply) for reply in replies} == {Failure.TIMEOUT}
    assert not caplog.records
