"""What users do every day, with the installed command and a real Redis."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from async_processor.producer import Producer, Submission
from async_processor.sim.pool import SimulatedPool
from async_processor.testing.daemons import SHORT_LEASES, DaemonProcess
from async_processor.testing.eventually import eventually, until
from async_processor.testing.messages import bare_message, message
from async_processor.testing.requirements import unavailable
from async_processor.testing.servers import RedisServer
from async_processor.wire.result import ErrorCode, Result

Fleet = Callable[..., DaemonProcess]

QUEUE = "request-sortedset"
PAYLOAD = {"prompt": "hi", "max_tokens": 4}
GO_MESSAGES = sorted((Path(__file__).parents[1] / "compat/golden/requests").glob("*.json"))


def redis_cli(server: RedisServer, *words: str, last: bytes | None = None) -> str:
    """What an operator types; `last` is a word that needs no quoting."""
    binary = shutil.which("redis-cli")
    if binary is None:
        unavailable("redis-cli is not installed")
    command = [binary, "-p", str(server.port), *(["-x"] if last is not None else []), *words]
    done = subprocess.run(command, check=True, capture_output=True, timeout=60, input=last)
    return done.stdout.decode()


async def result(producer: Producer, count: int = 1) -> dict[str, Result]:
    """Wait for that many results on the shared queue."""
    found: dict[str, Result] = {}
    async with asyncio.timeout(200):
        async for taken in producer.results():
            found[taken.result.id] = taken.result
            await taken.ack()
            if len(found) == count:
                return found
    raise AssertionError


async def test_a_plain_zadd_on_an_idle_queue_is_picked_up(
    fleet: Fleet, producer: Producer, redis_server: RedisServer
) -> None:
    async with SimulatedPool(latency=0) as pool, fleet(pool.url) as daemon:
        await asyncio.sleep(1.5)  # let it get used to having nothing to do
        deadline = time.time() + 600
        body = json.dumps({"id": "typed", "deadline": deadline, "payload": PAYLOAD})
        await asyncio.to_thread(redis_cli, redis_server, "ZADD", QUEUE, str(deadline), body)
        assert (await result(producer))["typed"].status_code == 200
        assert await daemon.metric("request_total", queue_id=QUEUE) == 1


async def test_a_request_cancelled_in_flight_frees_its_slot_in_the_pool(
    fleet: Fleet, producer: Producer
) -> None:
    async with SimulatedPool(latency=600) as pool, fleet(pool.url):
        handle = await producer.submit(Submission(payload=PAYLOAD, deadline="10m"))

        await until(lambda: pool.pods[0].load.running == 1)
        assert await producer.cancel(handle) == [True]
        await until(lambda: pool.pods[0].load.running == 0)
        assert (await producer.result(handle, timeout=120)).error_code is ErrorCode.CANCELLED


async def test_a_request_cancelled_while_it_waits_is_never_sent(
    fleet: Fleet, producer: Producer
) -> None:
    async with SimulatedPool(latency=0) as pool:
        handle = await producer.submit(Submission(payload=PAYLOAD, deadline="10m"))
        assert await producer.cancel(handle) == [True]
        async with fleet(pool.url):
            assert (await producer.result(handle, timeout=120)).error_code is ErrorCode.CANCELLED
        assert pool.ledger.total == 0


@pytest.mark.parametrize(
    "text", [file.read_text() for file in GO_MESSAGES], ids=[file.stem for file in GO_MESSAGES]
)
async def test_what_go_producers_write_is_run(
    fleet: Fleet, producer: Producer, redis_server: RedisServer, text: str
) -> None:
    written = json.loads(text)
    deadline = int(time.time()) + 600
    written["data"]["deadline"] = deadline
    written["data"]["payload"] = PAYLOAD
    written["data"].pop("endpoint", None)
    for routing in (written.get("internal", {}), written["data"]):
        routing.pop("result_queue_name", None)
    async with SimulatedPool(latency=0) as pool, fleet(pool.url):
        await asyncio.to_thread(
            redis_cli, redis_server, "ZADD", QUEUE, str(deadline), json.dumps(written)
        )
        found = await result(producer)
        assert found[written["data"]["id"]].status_code == 200


async def test_a_queue_of_good_expired_malformed_and_poisonous_messages(
    fleet: Fleet, producer: Producer, redis_server: RedisServer
) -> None:
    """One request kills its daemon whenever it runs; two hundred good ones do not suffer."""
    now = time.time()
    good = [message(f"good-{n}", payload={**PAYLOAD, "user": f"good-{n}"}) for n in range(200)]
    expired = [message(f"late-{n}", deadline=now - 10) for n in range(20)]
    invalid = [bare_message(f"bad-{n}", endpoint="http://elsewhere/") for n in range(20)]
    broken = [b"null", b"[]", b"17", b"\xff\xfe\x00", b'{"no": "id"}', b"{" * 100]
    poison = message("poison", payload={**PAYLOAD, "user": "poison"})
    await asyncio.to_thread(_zadd, redis_server, [poison, *good, *expired, *invalid, *broken])

    async with SimulatedPool(latency=0.2) as pool:
        daemon = fleet(pool.url, workers=16, transport=SHORT_LEASES)
        await daemon.start()

        async def killed_by_poison() -> None:
            for deadly in range(1, 6):
                await until(partial(_called, pool, deadly))
                await daemon.kill()
                await daemon.spawn()

        killing = asyncio.create_task(killed_by_poison())
        found = await result(producer, 241)
        await killing
        assert all(found[f"good-{n}"].status_code == 200 for n in range(200))
        assert all(found[f"late-{n}"].error_code is ErrorCode.DEADLINE_EXCEEDED for n in range(20))
        assert all(found[f"bad-{n}"].error_code is ErrorCode.INVALID_REQUEST for n in range(20))
        assert found["poison"].error_code is ErrorCode.MAX_DELIVERIES
        letters = await asyncio.to_thread(redis_cli, redis_server, "LLEN", "dead-letter-list")
        assert int(letters) == len(invalid) + len(broken) + 1
        assert await daemon.terminate() == 0
    await producer.close()
    left = await asyncio.to_thread(redis_cli, redis_server, "KEYS", "*")
    assert sorted(left.split()) == ["dead-letter-list"]


def _called(pool: SimulatedPool, times: int) -> bool:
    return pool.ledger.calls["poison"] >= times


def _zadd(server: RedisServer, bodies: list[bytes]) -> None:
    for body in bodies:
        try:
            score = str(json.loads(body)["data"]["deadline"])
        except (ValueError, KeyError, TypeError):
            score = str(time.time() + 600)
        redis_cli(server, "ZADD", QUEUE, score, last=body)


async def test_a_wrong_configuration_ends_with_2_and_says_what_is_wrong(
    fleet: Fleet,
) -> None:
    daemon = fleet("ftp://nowhere", queue={"gate": {"type": "constnat"}})
    await daemon.spawn()
    assert await daemon.ended() == 2
    assert "igw_base_url" in daemon.log()
    assert "constant" in daemon.log()
    assert "Traceback" not in daemon.log()


async def test_a_broker_that_is_away_at_start_is_waited_for(
    fleet: Fleet, redis_server: RedisServer
) -> None:
    await asyncio.to_thread(redis_server.kill)
    daemon = fleet("http://127.0.0.1:9")
    await daemon.spawn()

    async def alive_and_not_ready() -> bool:
        return bool(daemon.log()) and not await daemon.ready()

    await eventually(alive_and_not_ready)
    await asyncio.to_thread(redis_server.start)
    await eventually(daemon.ready)
    assert await daemon.terminate() == 0


async def test_a_signal_during_the_start_is_an_ordinary_end(
    fleet: Fleet, redis_server: RedisServer
) -> None:
    await asyncio.to_thread(redis_server.kill)
    daemon = fleet("http://127.0.0.1:9")
    await daemon.spawn()

    await until(lambda: bool(daemon.events("starting")))
    assert await daemon.terminate() == 0
