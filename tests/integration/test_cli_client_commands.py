"""Proves the client commands as people run them: streams, exit codes, and one-line errors."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from async_processor.redis_io.client import RedisClient
from async_processor.redis_io.connect import open_client
from async_processor.redis_io.keys import lot_key, queue_keys
from async_processor.testing.eventually import eventually
from async_processor.wire import dead_letter
from async_processor.wire.envelope import read
from async_processor.wire.result import Result, encode

QUEUE = "request-sortedset"


class Ended:
    """What a command left: its exit code and what it said."""

    def __init__(self, code: int, out: bytes, err: bytes) -> None:
        self.code = code
        self.out = out.decode()
        self.err = err.decode()

    @property
    def lines(self) -> Sequence[str]:
        return self.out.splitlines()


class Command:
    """`python -m async_processor` in a process of its own, against one broker."""

    def __init__(self, url: str) -> None:
        self._environ = {**os.environ, "REDIS_URL": url}

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "async_processor", *arguments),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env=self._environ,
        )

    async def __call__(self, *arguments: str, stdin: str = "") -> Ended:
        process = await self.start(*arguments)
        out, err = await asyncio.wait_for(process.communicate(stdin.encode()), 60)
        assert process.returncode is not None
        return Ended(process.returncode, out, err)


@pytest.fixture
def command(redis_url: str) -> Command:
    return Command(redis_url)


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[RedisClient]:
    client = open_client(redis_url)
    yield client
    await client.close()


async def _answer(redis: RedisClient, count: int, status: int) -> None:
    """Stand in for the daemon: answer `count` requests."""

    async def some() -> bool:
        return bool(await redis.execute("ZCARD", QUEUE) >= count)

    await eventually(some)
    for body, _ in zip(*[iter(await redis.execute("ZPOPMIN", QUEUE, count))] * 2, strict=True):
        message = read(body)
        result = encode(Result(id=message.request.id, payload="{}", status_code=status))
        await redis.execute("LPUSH", message.result_queue_name, result)


def test_starting_imports_nothing_that_takes_long() -> None:
    heavy = {"redis", "httpx", "pydantic", "aiohttp", "rich.live", "prometheus_client", "yaml"}
    code = (
        f"import sys, async_processor.cli.main; print(sorted({heavy!r}.intersection(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.stdout.strip() == "[]"


async def test_version_and_help(command: Command) -> None:
    version, help_ = await asyncio.gather(command("--version"), command("--help"))
    assert version.out.startswith("async-processor ")
    assert "dead-letter" in help_.out
    assert (version.code, help_.code) == (0, 0)


@pytest.mark.parametrize(
    "name",
    [
        *("run", "submit", "results", "cancel", "status", "demo", "simulate-pool"),
        *("dead-letter", "dead-letter purge", "config", "gate", "gate watch"),
    ],
)
async def test_every_command_has_help_with_an_example(command: Command, name: str) -> None:
    ended = await command(*name.split(), "--help")
    assert ended.code == 0
    assert "Example: async-processor" in ended.out


async def test_flags_alone_run_the_daemon(command: Command) -> None:
    ended = await command("--no-such-flag")
    assert ended.code == 2
    assert "No such command" not in ended.err
    assert "no-such-flag" in ended.err


async def test_submit_and_wait(command: Command, redis: RedisClient, tmp_path: Path) -> None:
    file, output = tmp_path / "requests.jsonl", tmp_path / "results.jsonl"
    file.write_text('{"prompt":"hi"}\n{"id":"r-1","payload":{"a":1}}\n')
    run = asyncio.ensure_future(command("submit", str(file), "--wait", "--output", str(output)))
    await _answer(redis, 2, 200)
    ended = await run
    assert (ended.code, ended.out) == (0, "")
    assert "submitted 2 to request-sortedset, 2 succeeded, 0 failed" in ended.err
    results = [json.loads(line) for line in output.read_text().splitlines()]
    assert len(results) == 2
    assert "r-1" in {result["id"] for result in results}


async def test_waiting_for_a_failure_fails(command: Command, redis: RedisClient) -> None:
    run = asyncio.ensure_future(command("submit", "--wait", stdin='{"prompt":"hi"}'))
    await _answer(redis, 1, 500)
    ended = await run
    assert ended.code == 1
    assert json.loads(ended.out)["status_code"] == 500


async def test_an_interrupted_wait_ends_with_130(command: Command, redis: RedisClient) -> None:
    process = await command.start("submit", "--wait")
    assert process.stdin is not None
    process.stdin.write(b'{"prompt":"hi"}\n')
    process.stdin.close()

    async def queued() -> bool:
        return bool(await redis.execute("ZCARD", QUEUE))

    await eventually(queued)
    process.send_signal(signal.SIGINT)
    assert await asyncio.wait_for(process.wait(), 60) == 130


async def test_a_bad_line_of_a_file_stops_all(
    command: Command, redis: RedisClient, tmp_path: Path
) -> None:
    file = tmp_path / "requests.jsonl"
    file.write_text('{"a":1}\n{"id":"r","payload":{},"dedline":3}\n')
    ended = await command("submit", str(file))
    assert ended.code == 1
    assert ended.err == (
        "async-processor: line 2: unknown field 'dedline'; did you mean deadline? "
        "(nothing was submitted)\n"
    )
    assert await redis.execute("DBSIZE") == 0


async def test_standard_input_is_submitted_up_to_the_bad_line(
    command: Command, redis: RedisClient
) -> None:
    ended = await command("submit", "-", stdin='{"a":1}\n{"id":"r","payload":{},"deadline":3}\n')
    assert ended.code == 1
    assert "line 2: deadline: 3 passed" in ended.err
    assert "(submitted before it: 1)" in ended.err
    assert await redis.execute("ZCARD", QUEUE) == 1


async def test_results_are_printed_and_gone(command: Command, redis: RedisClient) -> None:
    bodies = [encode(Result(id=str(number), payload="{}", status_code=200)) for number in range(3)]
    for body in bodies:
        await redis.execute("LPUSH", "result-list", body)
    first = await command("results", "--count", "1")
    rest = await command("results")
    assert [*first.lines, *rest.lines] == [body.decode() for body in bodies]
    assert await redis.execute("DBSIZE") == 0


async def test_results_are_followed_until_interrupted(command: Command, redis: RedisClient) -> None:
    process = await command.start("results", "--follow")
    assert process.stdout is not None
    for number in range(2):
        body = encode(Result(id=str(number), payload="{}", status_code=200))
        await redis.execute("LPUSH", "result-list", body)
        assert await asyncio.wait_for(process.stdout.readline(), 60) == body + b"\n"
    process.send_signal(signal.SIGINT)
    assert await asyncio.wait_for(process.wait(), 60) == 130


async def test_cancel_says_where_it_had_no_effect(command: Command, redis: RedisClient) -> None:
    await redis.execute("SET", "request-active:r-1", "t")
    ended = await command("cancel", "r-1", "unknown")
    assert (ended.code, ended.lines) == (1, ["r-1: cancelled"])
    assert "unknown: nothing to cancel" in ended.err
    assert await redis.execute("GET", "request-cancel:r-1") == b"t"


async def test_status_says_why_nothing_moves(command: Command, redis: RedisClient) -> None:
    now = time.time()
    await redis.execute("ZADD", QUEUE, now + 600, "a", (now + 700) * 1000, "b")
    await redis.execute("ZADD", "retry-sortedset", now - 1, "c")
    await redis.execute("ZADD", lot_key(QUEUE, "tenant"), now + 500, "d")
    await redis.execute("ZADD", queue_keys(QUEUE).lots, now + 500, "tenant")
    told, as_json = await asyncio.gather(command("status"), command("status", "--json"))
    assert "no daemon runs on this queue" in told.out
    assert "1 deadline in milliseconds" in told.out
    (queue,) = json.loads(as_json.out)["queues"]
    assert (queue["backlog"], queue["leased"], queue["retries_due"]) == (2, 0, 1)
    assert queue["inflight"] is None, "which only a daemon knows"
    assert queue["parked"] == 1
    assert queue["oldest_deadline"] == pytest.approx(now + 500)
    assert "no daemon runs" in queue["why"]


@asynccontextmanager
async def health_port(*queue_names: str, token: str = "") -> AsyncIterator[str]:
    """A daemon's health port, as far as `status` asks it; yields its URL."""

    def told(name: str) -> dict[str, object]:
        routing = {"queue_id": name, "queue_name": name, "pool_name": "p"}
        return {**routing, "inflight": 3, "gate": {}, "why": "the gate is closed"}

    status = {"ready": True, "pools": [], "queues": [told(name) for name in queue_names]}
    content = json.dumps(status).encode()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        assert asked.startswith(b"GET /status ")
        if token and f"Bearer {token}\r\n".encode() not in asked:
            writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(content) + content)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_status_asks_the_daemon(command: Command, redis: RedisClient) -> None:
    await redis.execute("ZADD", QUEUE, time.time() + 600, "a")
    async with health_port(QUEUE) as url:
        heard = await command("status", "--daemon", url)
    silent = await command("status", "--daemon", url)
    assert f"{QUEUE}: the gate is closed" in heard.out
    assert heard.out.splitlines()[1].split()[:5] == [QUEUE, "1", "0", "0", "3"]
    assert f"no daemon answers at {url}" in silent.out
    assert (heard.code, silent.code) == (0, 0)


async def test_status_takes_the_queues_from_the_daemon_that_is_asked(
    command: Command, redis: RedisClient
) -> None:
    await redis.execute("ZADD", "b", time.time() + 600, "m")
    async with health_port("a", "b") as url:
        asked, one = await asyncio.gather(
            command("status", "--json", "--daemon", url),
            command("status", "--json", "--daemon", url, "--queue", "b"),
        )
    queues = {queue["queue_name"]: queue["backlog"] for queue in json.loads(asked.out)["queues"]}
    assert queues == {"a": 0, "b": 1}
    assert [queue["queue_name"] for queue in json.loads(one.out)["queues"]] == ["b"]


async def test_status_says_that_a_daemon_wants_a_token(command: Command, tmp_path: Path) -> None:
    async with health_port(QUEUE, token="hunter2") as url:
        server = (
            f"{{bind: 127.0.0.1, health_port: {url.rpartition(':')[2]}, bearer_token: hunter2}}"
        )
        config = tmp_path / "config.yaml"
        config.write_text(
            "transport: {url: '${REDIS_URL}', queues: [{igw_base_url: 'http://localhost:8000'}]}\n"
            f"server: {server}\n"
        )
        without, wrong, right, configured = await asyncio.gather(
            command("status", "--daemon", url),
            command("status", "--daemon", url, "--token", "hunter3"),
            command("status", "--daemon", url, "--token", "hunter2"),
            command("status", "--config", str(config)),
        )
    assert f"the daemon at {url} asks for a token: give its" in without.out
    assert f"the daemon at {url} refuses the token: give its" in wrong.out
    assert "the gate is closed" in right.out
    assert "the gate is closed" in configured.out


async def test_status_says_when_leases_go_back_that_a_silent_daemon_left(
    command: Command, redis: RedisClient
) -> None:
    now = time.time()
    await redis.execute("ZADD", queue_keys(QUEUE).leases, (now + 50) * 1000, "1")
    silent = await command("status", "--daemon", "http://127.0.0.1:9")
    assert "1 lease stands, and no daemon answers at http://127.0.0.1:9" in silent.out


async def test_status_names_what_is_no_daemon(command: Command) -> None:
    wrong = await command("status", "--daemon", "localhost:8081")
    assert (wrong.code, wrong.out) == (2, "")
    assert "--daemon: got 'localhost:8081', must be the URL of a health port" in wrong.err


_CONFIG = """
transport:
  url: {url}
  dead_letter_queue_name: letters
  result_queue_name: answers
  queues:
    - {{queue_name: a, igw_base_url: "http://localhost:8000"}}
    - {{queue_name: b, igw_base_url: "http://localhost:8000", result_queue_name: all-of-b}}
"""


async def test_queues_come_from_the_daemons_configuration(
    redis_url: str, redis: RedisClient, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(_CONFIG.format(url=redis_url))
    command = Command("redis://no-such-host:1/0")
    which = await command("submit", "--config", str(config), stdin='{"a":1}')
    assert (which.code, which.err) == (2, "async-processor: --queue: name one of a, b\n")
    overridden = await command("submit", "--config", str(config), "--queue", "b", "--wait")
    assert overridden.code == 2
    assert "results of b all go to all-of-b" in overridden.err
    done = await command("submit", "--config", str(config), "--queue", "a", stdin='{"a":1}')
    assert done.code == 0
    (body,) = await redis.execute("ZRANGE", "a", 0, -1)
    assert read(body).result_queue_name == ""
    result = encode(Result(id="1", payload="{}", status_code=200))
    await redis.execute("LPUSH", "answers", result)
    results = await command("results", "--config", str(config))
    assert results.out == result.decode() + "\n"


async def test_old_output_is_kept_until_the_input_is_checked(
    command: Command, tmp_path: Path
) -> None:
    file, output = tmp_path / "requests.jsonl", tmp_path / "results.jsonl"
    file.write_text("oops\n")
    output.write_text("precious\n")
    ended = await command("submit", str(file), "--wait", "--output", str(output))
    assert ended.code == 1
    assert output.read_text() == "precious\n"


async def _bury(
    redis: RedisClient,
    body: bytes,
    reason: str,
    *,
    queue: str = QUEUE,
    buried_at: float = 1764045130,
) -> None:
    letter = dead_letter.encode(
        body, reason=reason, queue_name=queue, buried_at=buried_at, deliveries=5
    )
    await redis.execute("LPUSH", "dead-letter-list", letter)


async def test_dead_letters_are_listed_moved_back_and_purged(
    command: Command, redis: RedisClient
) -> None:
    await _bury(redis, b'{"id":"d-1","deadline":5,"payload":{"x": 1.0}}', "delivered 5 times")
    await _bury(redis, b"{oops", "is not JSON")
    listed = await command("dead-letter", "list", "--json")
    assert [json.loads(line)["id"] for line in listed.lines] == ["d-1", ""]
    shown = await command("dead-letter", "show", "d-1")
    assert json.loads(shown.out)["reason"] == "delivered 5 times"
    told = await command("dead-letter", "list")
    assert told.lines[0].split("\t") == ["buried at (UTC)", "id", "queue", "reason"]
    assert told.lines[2].split("\t") == ["2025-11-25 04:32:10", "-", QUEUE, "is not JSON"]
    nameless = await command("dead-letter", "show", "--reason", "JSON")
    assert [json.loads(line)["reason"] for line in nameless.lines] == ["is not JSON"]
    refused = await command("dead-letter", "requeue", "d-1")
    assert refused.code == 1
    assert "give it a new one with --deadline" in refused.err
    assert await redis.execute("LLEN", "dead-letter-list") == 2
    moved = await command("dead-letter", "requeue", "d-1", "--deadline", "1h")
    assert moved.code == 0
    (body,) = await redis.execute("ZRANGE", QUEUE, 0, -1)
    message = read(body)
    assert message.request.payload == b'{"x": 1.0}'
    assert await redis.execute("GET", "request-active:d-1") == message.request_token.encode()
    purged = await command("dead-letter", "purge", "--reason", "JSON")
    assert (purged.code, await redis.execute("LLEN", "dead-letter-list")) == (0, 0)


async def test_dead_letters_are_chosen_by_id_queue_reason_and_time(
    command: Command, redis: RedisClient
) -> None:
    for number in range(3):
        body = b'{"id":"d-%d","deadline":5,"payload":{}}' % number
        await _bury(redis, body, f"reason {number}", buried_at=1764045130 + number)
    await _bury(redis, b'{"id":"d-9","deadline":5,"payload":{}}', "elsewhere", queue="other")

    async def listed(*options: str) -> list[str]:
        ended = await command("dead-letter", "list", "--json", *options)
        return [json.loads(line)["id"] for line in ended.lines]

    assert await listed("d-1", "d-9") == ["d-1", "d-9"]
    assert await listed("--queue", "other") == ["d-9"]
    assert await listed("--reason", "REASON 2") == ["d-2"]
    assert await listed("--since", "1764045131") == ["d-1", "d-2"]
    assert await listed("--since", "2025-11-25T04:32:12Z", "--reason", "reason") == ["d-2"]
    assert await listed("--since", "1h") == []
    wrong = await command("dead-letter", "purge", "--since", "yesterday")
    assert (wrong.code, "--since: 'yesterday' is no time" in wrong.err) == (2, True)
    purged = await command("dead-letter", "purge", "--since", "1764045132")
    assert purged.code == 0
    assert await listed() == ["d-0", "d-1", "d-9"]


async def test_all_dead_letters_are_moved_back_with_a_new_deadline(
    command: Command, redis: RedisClient
) -> None:
    for number in range(120):
        await _bury(redis, b'{"id":"d-%d","deadline":5,"payload":{}}' % number, "poison")
    moved = await command("dead-letter", "requeue", "--all", "--deadline", "1h")
    assert (moved.code, "requeued 120" in moved.err) == (0, True)
    assert await redis.execute("ZCARD", QUEUE) == 120
    assert await redis.execute("EXISTS", "dead-letter-list") == 0


async def test_a_result_that_a_dead_letter_holds_is_delivered_and_not_lost_by_accident(
    command: Command, redis: RedisClient
) -> None:
    letter = dead_letter.encode(
        b'{"id":"d-1","deadline":5,"payload":{}}',
        reason="no list takes the result",
        queue_name=QUEUE,
        buried_at=1764045130,
        deliveries=0,
        result=b'{"id":"d-1"}',
        result_queue_name="answers",
    )
    await redis.execute("LPUSH", "dead-letter-list", letter)
    await redis.execute("SET", "answers", "no list")
    kept = await command("dead-letter", "purge", "--all")
    assert (kept.code, "d-1: kept, for it holds the only copy" in kept.err) == (1, True)
    refused = await command("dead-letter", "requeue", "--all")
    assert (refused.code, "answers is a string" in refused.err) == (1, True)
    await redis.execute("DEL", "answers")
    moved = await command("dead-letter", "requeue", "--all")
    assert (moved.code, moved.err) == (0, "requeued 1, of them 1 as the result that was held\n")
    assert await redis.execute("LRANGE", "answers", 0, -1) == [b'{"id":"d-1"}']
    assert await redis.execute("EXISTS", QUEUE, "dead-letter-list") == 0

    await redis.execute("LPUSH", "dead-letter-list", letter)
    purged = await command("dead-letter", "purge", "--all", "--with-results")
    assert (purged.code, await redis.execute("EXISTS", "dead-letter-list")) == (0, 0)


async def test_odd_dead_letters_stop_no_command(command: Command, redis: RedisClient) -> None:
    await _bury(redis, b'{"id":"d-1","deadline":5,"payload":{}}', "poison", buried_at=1e300)
    odd = b'{"reason": "r", "queue_name": "q", "buried_at": 0, "message_base64": "a"}'
    await redis.execute("LPUSH", "dead-letter-list", odd)
    listed = await command("dead-letter", "list")
    assert (listed.code, len(listed.lines)) == (0, 3)
    purged = await command("dead-letter", "purge", "--all")
    assert (purged.code, purged.err) == (0, "purged 2\n")


async def test_without_a_broker_a_command_ends_soon_or_says_that_it_tries() -> None:
    nobody = Command("redis://127.0.0.1:9/0")
    ended, following = await asyncio.gather(
        nobody("cancel", "r-1"), nobody.start("results", "--follow")
    )
    assert (ended.code, len(ended.err.splitlines())) == (1, 1)
    assert following.stderr is not None
    said = await asyncio.wait_for(following.stderr.readline(), 60)
    assert said.startswith(b"async-processor: ")
    assert said.endswith(b"; trying again\n")
    following.kill()
    await following.communicate()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("submit", "/no/such/file"), "cannot be read"),
        (("submit", "--no-such-option"), "See async-processor submit --help."),
        (("dead-letter", "purge"), "say which"),
        (("dead-letter", "show"), "say which"),
        (("dead-letter",), "See async-processor dead-letter --help."),
        (("config",), "See async-processor config --help."),
        (("gate",), "See async-processor gate --help."),
        (("sbmit",), "Did you mean 'submit'?"),
        (("status", "--url", "ftp://x"), "transport.url"),
        (("cancel",), "See async-processor cancel --help."),
    ],
)
async def test_wrong_usage_is_told_in_one_line(
    command: Command, arguments: tuple[str, ...], words: str
) -> None:
    ended = await command(*arguments)
    assert ended.code == 2
    assert words in ended.err
    assert len(ended.err.splitlines()) == 1
    assert ended.out == ""
