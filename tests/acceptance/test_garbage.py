"""Whatever lies in the queue ends in a result or a dead letter with its reason, and harms nobody.

The installed command on a real Redis; all of it lies in one queue, with a good request at its end.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from enum import Enum, auto
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from async_processor.redis_io.client import RedisClient
from async_processor.redis_io.connect import open_client
from async_processor.redis_io.keys import queue_keys
from async_processor.sim.pool import SimulatedPool
from async_processor.testing.daemons import DaemonProcess
from async_processor.testing.eventually import eventually
from async_processor.testing.messages import bare_message, message
from async_processor.testing.servers import RedisServer
from async_processor.wire import dead_letter, envelope
from async_processor.wire import result as results
from async_processor.wire.dead_letter import DeadLetter
from async_processor.wire.envelope import Envelope
from async_processor.wire.result import ErrorCode, Result

Fleet = Callable[..., DaemonProcess]

QUEUE: Final = "request-sortedset"
PAYLOAD: Final = {"prompt": "hi", "max_tokens": 1}
SOON: Final = int(time.time()) + 3600
DEEP: Final = 100_000
FIELDS: Final = ("created", "deadline", "payload", "model", "metadata", "headers", "endpoint")
INTERNAL: Final = (
    *("retry_count", "queue_id", "request_token", "request_queue_name", "result_queue_name"),
    *("transport_correlation_id", "enqueue_seq", "labels", "payload_ref"),
)


class End(Enum):
    """What becomes of a message."""

    RUNS = auto()
    REFUSED = auto()
    """Its sender is told INVALID_REQUEST, and the message is a dead letter."""
    BURIED = auto()
    """A dead letter alone: nobody can be told."""


def request(request_id: str, **fields: Any) -> bytes:
    return bare_message(request_id, **{"deadline": SOON, "payload": PAYLOAD, **fields})


def raw(request_id: str, rest: str) -> bytes:
    return f'{{"id":"{request_id}","deadline":{SOON},{rest}}}'.encode()


NO_MESSAGES: Final = {
    "nothing": b"",
    "null": b"null",
    "true": b"true",
    "a list": b"[]",
    "a number": b"17",
    "a text": b'"text"',
    "an empty object": b"{}",
    "half an object": b'{"a":',
    "bytes that are no UTF-8": b"\xff\xfe\x00\x01",
    "NUL bytes": b"\x00" * 64,
    "10 MB of letters": b"x" * 10_000_000,
    "deep nesting": b"[" * DEEP,
    "deep nesting, closed": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "an empty id": request(""),
    "an id of null": request("x", id=None),
    "an id of a number": request("x", id=7),
    "an id of a list": request("x", id=["x"]),
}
REFUSED: Final = {
    **{
        f"deadline-{written}": raw(f"deadline-{written}", "").replace(
            b'"deadline":%d,' % SOON, b'"payload":{},"deadline":%s' % written.encode()
        )
        for written in ("0", "-1", "1e999", "NaN", "[]", "true", "null")
    },
    "deadline-soon": request("deadline-soon", deadline="soon"),
    "payload-deep": raw("payload-deep", '"payload":{"a":' + "[" * DEEP + "]" * DEEP + "}"),
    "payload-large": request("payload-large", payload={"prompt": "x" * (17 * 2**20)}),
    "kind-unknown": json.dumps(
        {"request_kind": "carrier pigeon", "data": json.loads(request("kind-unknown"))}
    ).encode(),
    "kind-number": json.dumps(
        {"request_kind": 5, "data": json.loads(request("kind-number"))}
    ).encode(),
    **{f"type-{name}": request(f"type-{name}", **{name: [1]}) for name in FIELDS},
    **{
        f"internal-{name}": message(
            f"internal-{name}", deadline=SOON, payload=PAYLOAD, internal={name: [1]}
        )
        for name in INTERNAL
    },
}
RUN: Final = {
    "deadline-1e308": request("deadline-1e308", deadline=1e308),
    "deadline-text": request("deadline-text", deadline=str(SOON)),
    "deadline-milliseconds": request("deadline-milliseconds", deadline=SOON * 1000),
    "i" * 10_000: request("i" * 10_000),
    "nul\x00within": request("nul\x00within"),
    "line\r\nbreak \x1b[31m": request("line\r\nbreak \x1b[31m"),
    "surrogate-in-payload": raw("surrogate-in-payload", r'"payload":{"prompt":"\ud800"}'),
    "10-MB": request("10-MB", payload={**PAYLOAD, "prompt": "x" * 10_000_000}),
}


class Garbage:
    """A daemon at work, and what lies in its broker."""

    def __init__(self, redis: RedisClient, daemon: DaemonProcess) -> None:
        self.redis = redis
        self.daemon = daemon

    async def thrown(self, bodies: Collection[bytes]) -> tuple[list[Result], list[DeadLetter]]:
        """Put all into the queue in one step; what is left when all has come to its end."""
        members = [argument for body in bodies for argument in (SOON, body)]
        await self.redis.execute("ZADD", QUEUE, *members)
        await eventually(self._done, within=120)
        lists = [name for name in await self._lists() if name != b"dead-letter-list"]
        found = [results.decode(body) for name in lists for body in await self._all(name)]
        letters = [dead_letter.decode(body) for body in await self._all(b"dead-letter-list")]
        for name in (*lists, b"dead-letter-list"):
            await self.redis.execute("DEL", name)
        return found, letters

    async def _done(self) -> bool:
        keys = queue_keys(QUEUE)
        left = await self.redis.pipeline(
            [
                ("ZCARD", QUEUE),
                ("HLEN", keys.claims),
                ("ZCARD", keys.leases),
                ("ZCARD", "retry-sortedset"),
            ]
        )
        assert self.daemon.running, self.daemon.log()[-2000:]
        return not any(left)

    async def _lists(self) -> list[bytes]:
        names: list[bytes] = await self.redis.execute("KEYS", "*")
        kinds = await self.redis.pipeline([("TYPE", name) for name in names])
        return [name for name, kind in zip(names, kinds, strict=True) if kind == b"list"]

    async def _all(self, name: bytes) -> list[bytes]:
        items: list[bytes] = await self.redis.execute("LRANGE", name, 0, -1)
        return items


@asynccontextmanager
async def garbage_stage(fleet: Fleet, server: RedisServer) -> AsyncIterator[Garbage]:
    redis = open_client(server.url)
    patient = {"lease_ttl": "60s"}
    async with SimulatedPool(latency=0) as pool, fleet(pool.url, transport=patient) as daemon:
        yield Garbage(redis, daemon)
    await redis.close()


@pytest.fixture
async def stage(fleet: Fleet, redis_server: RedisServer) -> AsyncIterator[Garbage]:
    async with garbage_stage(fleet, redis_server) as stage:
        yield stage


async def test_each_kind_of_garbage_comes_to_the_end_that_is_meant_for_it(stage: Garbage) -> None:
    bodies = [*NO_MESSAGES.values(), *REFUSED.values(), *RUN.values(), request("good")]
    found, letters = await stage.thrown(bodies)

    by_id = {each.id: each for each in found}
    assert len(found) == len(by_id) == len(REFUSED) + len(RUN) + 1
    answered = {each: by_id[each].status_code for each in by_id if by_id[each].status_code}
    assert set(answered) == {*RUN, "good"}
    assert {each for each in answered if answered[each] != 200} <= {"surrogate-in-payload"}
    refused = {each for each in by_id if by_id[each].error_code is ErrorCode.INVALID_REQUEST}
    assert refused == set(REFUSED)
    assert all(by_id[each].error_message for each in refused)
    buried = [letter.body for letter in letters]
    assert sorted(buried) == sorted([*NO_MESSAGES.values(), *REFUSED.values()])
    assert all(letter.reason for letter in letters)


async def test_the_same_id_at_the_same_time_is_as_many_requests_as_there_are_messages(
    stage: Garbage,
) -> None:
    twins = [request("twin", payload={**PAYLOAD, "user": f"{number}"}) for number in range(50)]
    found, letters = await stage.thrown(twins * 2)
    assert Counter(each.id for each in found) == {"twin": 50}, "byte-identical ones are one"
    assert all(each.status_code == 200 for each in found)
    assert letters == []


_json: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


def _data(base: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    fields = st.fixed_dictionaries({}, optional=dict.fromkeys((*FIELDS, "id", "unknown"), _json))
    return fields.map(lambda odd: {**base, **odd})


_bare = _data({"id": "odd", "deadline": SOON, "payload": PAYLOAD})
_messages = (
    st.binary(max_size=100)
    | _json.map(lambda value: json.dumps(value).encode())
    | _bare.map(lambda value: json.dumps(value).encode())
    | st.fixed_dictionaries(
        {
            "internal": _json | st.fixed_dictionaries({}, optional=dict.fromkeys(INTERNAL, _json)),
            "request_kind": st.sampled_from(["plain", "redis", "pubsub"]) | _json,
            "data": _bare,
        }
    ).map(lambda value: json.dumps(value).encode())
)


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(bodies=st.sets(_messages, min_size=5, max_size=40))
async def test_no_garbage_is_lost_or_answered_twice(stage: Garbage, bodies: set[bytes]) -> None:
    found, letters = await stage.thrown(bodies)
    read = {body: envelope.examine(body) for body in bodies}
    ids = {
        body: told.request.id if isinstance(told, Envelope) else told.id
        for body, told in read.items()
    }
    assert Counter(each.id for each in found) == Counter(filter(None, ids.values()))
    refused = [each for each in found if each.error_code is ErrorCode.INVALID_REQUEST]
    nameless = [body for body in bodies if not ids[body]]
    assert len(letters) == len(refused) + len(nameless)
    buried = {letter.body for letter in letters}
    assert buried >= {body for body, told in read.items() if not isinstance(told, Envelope)}
    assert stage.daemon.running
