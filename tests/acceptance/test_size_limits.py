"""Each configured limit at its edge: what fits is served, one byte more is answered clearly."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import httpx
import pytest

from async_processor.redis_io.client import RedisClient
from async_processor.redis_io.connect import open_client
from async_processor.testing.daemons import DaemonProcess
from async_processor.testing.eventually import eventually
from async_processor.testing.gateway import Gateway
from async_processor.testing.messages import DEADLINE, bare_message
from async_processor.testing.servers import RedisServer
from async_processor.wire import result as results
from async_processor.wire.result import ErrorCode, Result

Fleet = Callable[..., DaemonProcess]

PAYLOAD_BYTES: Final = 1000
HEADER_BYTES: Final = 100
_OF_A_LINE: Final = len("X-A: \r\n")


@pytest.fixture
async def redis(redis_server: RedisServer) -> AsyncIterator[RedisClient]:
    client = open_client(redis_server.url)
    yield client
    await client.close()


async def ended(redis: RedisClient, *bodies: bytes) -> dict[str, Result]:
    """The results of these requests; they are gone from the queue of results then."""
    for body in bodies:
        await redis.execute("ZADD", "request-sortedset", DEADLINE, body)

    async def all_there() -> bool:
        count: int = await redis.execute("LLEN", "result-list")
        return count >= len(bodies)

    await eventually(all_there)
    found = await redis.execute("LPOP", "result-list", len(bodies))
    return {each.id: each for each in map(results.decode, found)}


def with_payload(request_id: str, size: int) -> bytes:
    payload = {"prompt": "x" * (size - len(json.dumps({"prompt": ""})))}
    assert len(json.dumps(payload)) == size
    return bare_message(request_id, payload=payload)


def with_header(request_id: str, size: int) -> bytes:
    return bare_message(request_id, headers={"X-A": "x" * (size - _OF_A_LINE)})


async def test_a_payload_and_the_headers_of_a_message(fleet: Fleet, redis: RedisClient) -> None:
    limits: dict[str, Any] = {"payload_bytes": PAYLOAD_BYTES, "header_bytes": HEADER_BYTES}
    async with Gateway() as gateway, fleet(gateway.url, limits=limits):
        found = await ended(
            redis,
            with_payload("payload fits", PAYLOAD_BYTES),
            with_payload("payload is over", PAYLOAD_BYTES + 1),
            with_header("headers fit", HEADER_BYTES),
            with_header("headers are over", HEADER_BYTES + 1),
        )
    assert found["payload fits"].status_code == found["headers fit"].status_code == 200
    for over, size in (("payload is over", PAYLOAD_BYTES), ("headers are over", HEADER_BYTES)):
        assert found[over].error_code is ErrorCode.INVALID_REQUEST
        assert f"{size + 1} bytes" in (found[over].error_message or "")
        assert str(size) in (found[over].error_message or "")


async def test_an_answer(fleet: Fleet, redis: RedisClient) -> None:
    async with Gateway() as gateway:
        async with httpx.AsyncClient(timeout=30) as client:
            whole = (await client.post(gateway.url, json={})).text
        size = len(whole.encode())
        async with fleet(gateway.url, limits={"answer_bytes": size}):
            fits = (await ended(redis, bare_message("fits")))["fits"]
        async with fleet(gateway.url, limits={"answer_bytes": size - 1}):
            over = (await ended(redis, bare_message("over")))["over"]
    assert fits.payload == whole
    assert over.error_code is ErrorCode.INFERENCE_ERROR
    assert str(size - 1) in (over.error_message or "")
    assert len(gateway.arrivals) == 3, "what is too large once is too large always"


async def test_a_claim(fleet: Fleet, redis: RedisClient) -> None:
    """However small the limit, each request is taken, one at a time if need be."""
    async with Gateway() as gateway, fleet(gateway.url, limits={"claim_bytes": 1}):
        found = await ended(redis, *(with_payload(f"r-{n}", 10_000) for n in range(20)))
    assert {each.status_code for each in found.values()} == {200}
    assert len(found) == 20
