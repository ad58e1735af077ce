"""What a sender of messages, a stranger on the network or a reader of logs cannot do.

Here with the installed command; what lies below it is proved where it lives:

| nobody can ...                                     | proved in                                   |
|---|---|
| reach another host or path by `endpoint`           | here; unit/test_wire_endpoint               |
| inject headers, or overwrite the operator's        | here; unit/test_headers                     |
| name a result queue that is not theirs             | here; unit/test_triage                      |
| name another's stored payload or mailbox           | unit/test_wire_read, unit/test_triage       |
| read or cancel with a wrong token                  | here; contract/test_contract_senders        |
| write a line of the log, or colours into it        | here; unit/test_logs                        |
| find a secret in logs, errors, metrics, `status`,  | here; unit/test_logs, unit/test_fields,     |
| dead letters, the process list                     | unit/test_config_show, redis_access         |
| read /status or /metrics without the token         | here; integration/test_health_server        |
| be believed without a certificate                  | integration/test_redis_access,              |
|                                                    | integration/test_http_engine_tls            |
| switch that off without a warning                  | unit/test_config_load                       |
| run code by a configuration file                   | unit/test_config_yaml_file                  |
| fill the memory: payload, answer, headers          | acceptance/test_size_limits                 |
| fill the broker with dead letters                  | unit/test_letter_limit                      |
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
import pytest

from async_processor.producer import Handle, Producer, Submission
from async_processor.redis_io.client import RedisClient
from async_processor.redis_io.connect import open_client
from async_processor.testing.daemons import DaemonProcess, short_lived_settings
from async_processor.testing.eventually import eventually
from async_processor.testing.gateway import Gateway
from async_processor.testing.messages import DEADLINE, bare_message, message
from async_processor.testing.servers import RedisServer
from async_processor.wire import result as results
from async_processor.wire.result import ErrorCode, Result

Fleet = Callable[..., DaemonProcess]

QUEUE: Final = "request-sortedset"
ENDPOINTS: Final = (
    *("http://{elsewhere}/v1/x", "//{elsewhere}/v1/x", "/\\{elsewhere}/v1/x", "@{elsewhere}/v1/x"),
    *("{elsewhere}/v1/x", "/v1/../../admin", "/v1/%2e%2e/admin", "/v1//admin", "/v1/x\r\nHost: y"),
    *("/v1/x\n", "/v1/\x00", ":80/v1", "?x=1", "https:/v1/x"),
)


@pytest.fixture
async def redis(redis_server: RedisServer) -> AsyncIterator[RedisClient]:
    client = open_client(redis_server.url)
    yield client
    await client.close()


async def put(redis: RedisClient, *bodies: bytes) -> None:
    for body in bodies:
        await redis.execute("ZADD", QUEUE, DEADLINE, body)


async def results_on(
    redis: RedisClient, count: int, queue: str = "result-list"
) -> dict[str, Result]:
    async def all_there() -> list[bytes] | None:
        found: list[bytes] = await redis.execute("LRANGE", queue, 0, -1)
        return found if len(found) >= count else None

    found = await eventually(all_there)
    return {each.id: each for each in map(results.decode, found or ())}


async def test_no_endpoint_leads_to_another_host_or_out_of_its_path(
    fleet: Fleet, redis: RedisClient
) -> None:
    async with Gateway() as elsewhere, Gateway() as gateway, fleet(gateway.url):
        place = elsewhere.url.removeprefix("http://")
        attacks = [endpoint.replace("{elsewhere}", place) for endpoint in ENDPOINTS]
        await put(
            redis,
            *(bare_message(f"a-{n}", endpoint=endpoint) for n, endpoint in enumerate(attacks)),
            bare_message("good", endpoint="/v1/chat/completions", headers={"Host": place}),
        )
        found = await results_on(redis, len(attacks) + 1)
    assert found.pop("good").status_code == 200
    assert {each.error_code for each in found.values()} == {ErrorCode.INVALID_REQUEST}
    assert [call.path for call in gateway.arrivals] == ["/v1/chat/completions"]
    assert gateway.arrivals[0].headers["Host"] == gateway.url.removeprefix("http://")
    assert elsewhere.arrivals == []


async def test_no_message_injects_headers_or_overwrites_the_operators(
    fleet: Fleet, redis: RedisClient
) -> None:
    operators = {
        "authorization": "Bearer operator",
        "x-llm-d-inference-objective": "background",
        "x-gateway-inference-objective": "background",
        "x-llm-d-inference-fairness-id": "team-a",
    }
    theirs = {
        **dict.fromkeys(map(str.upper, operators), "attacker"),
        "Content-Length": "1",
        "Transfer-Encoding": "chunked",
        "Connection": "x-fine",
        "x-split": "a\r\nx-evil: 1",
        "x-evil\r\nx-worse": "1",
        "x-fine\n": "1",
    }
    async with (
        Gateway() as gateway,
        fleet(
            gateway.url,
            queue={"inference_objective": "background"},
            inference={"headers": {"Authorization": "Bearer operator"}},
        ),
    ):
        await put(redis, bare_message("a", headers=theirs, metadata={"userid": "team-a"}))
        assert (await results_on(redis, 1))["a"].status_code == 200
    (call,) = gateway.arrivals
    sent = {name.lower(): value for name, value in call.headers.items()}
    assert {name: sent.get(name) for name in operators} == operators
    assert not {name for name in sent if "evil" in name or "worse" in name or "split" in name}
    assert "attacker" not in str(call.headers)


async def test_a_result_queue_that_is_not_allowed_gets_nothing(
    fleet: Fleet, redis: RedisClient
) -> None:
    allowed = {"allowed_result_queues": ["team-a-*"]}
    forbidden = ("team-b-results", "request-sortedset", "retry-sortedset", "dead-letter-list")
    async with Gateway() as gateway, fleet(gateway.url, queue=allowed):
        await put(
            redis,
            *(message(f"to {name}", internal={"result_queue_name": name}) for name in forbidden),
            message("mine", internal={"result_queue_name": "team-a-results"}),
        )
        refused = await results_on(redis, len(forbidden))
        assert set(await results_on(redis, 1, "team-a-results")) == {"mine"}
    assert {each.error_code for each in refused.values()} == {ErrorCode.INVALID_REQUEST}
    assert await redis.execute("EXISTS", "team-b-results", "retry-sortedset") == 0
    assert len(gateway.arrivals) == 1


async def test_without_its_token_a_request_is_neither_read_nor_cancelled(
    fleet: Fleet, producer: Producer, redis_server: RedisServer
) -> None:
    async with (
        Gateway(hold=True) as gateway,
        fleet(gateway.url),
        Producer(redis_server.url) as attacker,
    ):
        handle = await producer.submit(Submission(id="theirs", payload={}, deadline="10m"))
        token = "0" * 32
        stolen = Handle(
            id=handle.id,
            request_token=token,
            queue_name=QUEUE,
            deadline=handle.deadline,
            result_queue=f"request-result:theirs:{token}",
        )

        async def called() -> bool:
            return bool(gateway.open)

        await eventually(called)
        assert await attacker.cancel(stolen) == [False]
        with pytest.raises(TimeoutError):
            await attacker.take(stolen, timeout=0.1)
        gateway.open[0].answer()
        assert (await producer.result(handle, timeout=60)).status_code == 200


SECRETS: Final = {
    name: f"{name.lower()}-{secrets.token_hex(8)}"
    for name in ("BROKER_PASSWORD", "GATEWAY_KEY", "STATUS_TOKEN", "CALLERS_KEY")
}
FORGED: Final = '{"event": "forged", "level": "error"}'
INJECTIONS: Final = tuple(
    f"{start}{FORGED}"
    for start in ("\n", "\r\n", "\x0b", "\x1b[2K\r", "\u2028", "\x85", '"}\n', "\u202e")
)


@asynccontextmanager
async def talkative(
    server: RedisServer, gateway: Gateway, folder: Path
) -> AsyncIterator[DaemonProcess]:
    """A daemon that logs all it can, with a secret wherever there may be one."""
    settings = short_lived_settings(
        f"redis://:${{BROKER_PASSWORD}}@127.0.0.1:{server.port}/0",
        gateway.url,
        inference={"headers": {"Authorization": "Bearer ${GATEWAY_KEY}"}},
        server={"bearer_token": "${STATUS_TOKEN}"},
    )
    daemon = DaemonProcess(settings, folder)
    command = (sys.executable, "-m", "async_processor", "run", "--config", str(daemon.config_file))
    with daemon.log_file.open("ab") as log:
        daemon._process = await asyncio.create_subprocess_exec(
            *command, "-v", "5", stdout=log, stderr=log, env=_environment()
        )
    async with daemon_ready(daemon):
        yield daemon


def _environment() -> dict[str, str]:
    return {**os.environ, **SECRETS}


@asynccontextmanager
async def daemon_ready(daemon: DaemonProcess) -> AsyncIterator[None]:
    try:
        await eventually(daemon.ready)
        yield
    finally:
        if daemon.running:
            await daemon.kill()


async def pages(daemon: DaemonProcess) -> Mapping[str, str]:
    """What the daemon serves, to whom has the token and to whom has not."""
    token = {"Authorization": f"Bearer {SECRETS['STATUS_TOKEN']}"}
    metrics = f"http://127.0.0.1:{daemon.metrics_port}/metrics"
    status, readyz = (f"http://127.0.0.1:{daemon.health_port}/{it}" for it in ("status", "readyz"))
    async with httpx.AsyncClient(timeout=60) as client:
        for guarded in (metrics, status):
            for wrong in ({}, {"Authorization": "Bearer guessed"}):
                assert (await client.get(guarded, headers=wrong)).status_code == 401
        return {
            url: (await client.get(url, headers=token)).text for url in (metrics, status, readyz)
        }


def _command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def _status_command(daemon: DaemonProcess) -> str:
    command = [sys.executable, "-m", "async_processor", "status", "--config"]
    done = subprocess.run(
        [*command, str(daemon.config_file)],
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert QUEUE in done.stdout, done.stderr
    return done.stdout + done.stderr


async def test_no_secret_shows_and_no_line_is_forged(tmp_path: Path) -> None:
    password = SECRETS["BROKER_PASSWORD"]
    with RedisServer(args=["--requirepass", password]) as server:
        redis = open_client(f"redis://:{password}@127.0.0.1:{server.port}/0")
        async with Gateway() as gateway, talkative(server, gateway, tmp_path) as daemon:
            headers = {"X-Api-Key": SECRETS["CALLERS_KEY"]}
            good = [
                message(f"good {text}", token=text, headers=headers, metadata={"userid": text})
                for text in INJECTIONS
            ]
            bad = [
                message(f"bad {text}", endpoint=text, internal={"queue_id": text})
                for text in INJECTIONS
            ]
            await put(redis, *good, *bad, *(text.encode() for text in INJECTIONS))
            found = await results_on(redis, len(good) + len(bad))
            assert all(found[f"good {text}"].status_code == 200 for text in INJECTIONS)

            shown = dict(await pages(daemon))
            shown["status"] = await asyncio.to_thread(_status_command, daemon)
            shown["ps"] = await asyncio.to_thread(_command_line, daemon.process.pid)
            letters = await redis.execute("LRANGE", "dead-letter-list", 0, -1)
            shown["dead letters"] = repr(letters)
            await redis.execute("CONFIG", "SET", "requirepass", "another")
            await redis.execute("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

            async def says_so() -> bool:
                return b"denies access" in daemon.log_file.read_bytes()

            await eventually(says_so)
            shown |= {f"locked out {url}": text for url, text in (await pages(daemon)).items()}
        shown["log"] = daemon.log()
        await redis.close()

    for place, text in shown.items():
        leaked = [name for name, secret in SECRETS.items() if secret in text]
        assert leaked == [], place
    _assert_nothing_forged(daemon.log_file.read_bytes())


def _assert_nothing_forged(log: bytes) -> None:
    assert b"\x1b" not in log
    records: list[Any] = [msgspec.json.decode(line) for line in log.split(b"\n") if line]
    assert all(isinstance(record, dict) and record["event"] != "forged" for record in records)
    assert any("good" in record.get("request_id", "") for record in records), "ids are logged"
    for text in log.decode().splitlines():  # by whatever some viewer takes for the end of a line
        assert json.loads(text)["event"] != "forged"
