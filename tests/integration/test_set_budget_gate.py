"""The `redis` gate on a real Redis: at most the key's share of the workers in flight, a key that is
heard within a tenth of a second, and nothing while it cannot be read."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from async_processor.admission.base import Continue, Gate, GateState, Reason, Refuse
from async_processor.admission.build import GateContext, build_gate
from async_processor.admission.live_number import LiveNumber
from async_processor.admission.settings import RedisGate
from async_processor.clock import SystemClock
from async_processor.redis_io.client import RedisClient
from async_processor.redis_io.connect import open_client
from async_processor.sensors.polling import EAGER_SECONDS, IDLE_INTERVAL
from async_processor.testing.candidates import CANDIDATE
from async_processor.testing.eventually import eventually, until
from async_processor.testing.servers import RedisServer

KEY = "dispatch-gate-budget"
WORKERS = 10


@asynccontextmanager
async def gates(url: str, count: int = 1, **settings: str) -> AsyncIterator[list[Gate]]:
    context = GateContext(prometheus=None, clock=SystemClock(), redis_url=url)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(context.redis.stop)
        stack.push_async_callback(context.sensors.stop)
        built = [
            build_gate(RedisGate.model_validate(settings), context, workers=LiveNumber(WORKERS))
            for _ in range(count)
        ]
        for gate in built:
            await gate.start()
        yield built


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[RedisClient]:
    client = open_client(redis_url)
    yield client
    await client.close()


@pytest.fixture
async def gate(redis_url: str) -> AsyncIterator[Gate]:
    async with gates(redis_url) as (gate,):
        yield gate


async def has(gate: Gate, wanted: Callable[[GateState], bool]) -> GateState:
    try:
        await until(lambda: gate.permits(WORKERS) >= 0 and wanted(gate.state()))
    except TimeoutError:
        pytest.fail(f"the gate stays at {gate.state()}")
    return gate.state()


async def reads(gate: Gate, budget: float) -> GateState:
    return await has(gate, lambda state: state.available and state.budget == budget)


async def test_a_key_that_is_not_set_leaves_the_gate_open_and_says_so(gate: Gate) -> None:
    state = await reads(gate, 1.0)
    assert state.reason == f"the key '{KEY}' is not set"
    assert gate.permits(WORKERS) == WORKERS
    assert all([isinstance(await gate.admit(CANDIDATE), Continue) for _ in range(2 * WORKERS)])


async def test_open_partly_closed_and_back(gate: Gate, client: RedisClient) -> None:
    for text, budget, permits in (
        ("0.35", 0.35, 3), ("0", 0.0, 0), ("1", 1.0, 10), ("0.05", 0.05, 0), ("7", 1.0, 10),
        ("-1", 0.0, 0), ("5e-1", 0.5, 5),
    ):  # fmt: skip
        await client.execute("SET", KEY, text)
        await reads(gate, budget)
        assert gate.permits(WORKERS) == permits
    await client.execute("DEL", KEY)
    await reads(gate, 1.0)


@pytest.mark.parametrize(
    "text", ["", "open", "nan", "inf", "0,5", "{}", "1_0", " 1 ", "1\n", "0x1", "1e999", "\u0661"]
)
async def test_what_is_no_number_closes(gate: Gate, client: RedisClient, text: str) -> None:
    await reads(gate, 1.0)
    await client.execute("SET", KEY, text)
    state = await has(gate, lambda state: not state.available)
    assert (state.budget, gate.permits(WORKERS)) == (0.0, 0)
    assert f"the key '{KEY}' holds" in state.reason
    refused = await gate.admit(CANDIDATE)
    assert isinstance(refused, Refuse)
    assert (refused.reason, refused.message) == (Reason.GATE_CLOSED, state.reason)


async def test_a_key_of_another_type_closes(gate: Gate, client: RedisClient) -> None:
    await client.execute("HSET", KEY, "a", "b")
    refused = await has(gate, lambda state: "WRONGTYPE" in state.reason)
    assert not refused.available


async def test_what_runs_counts_and_not_what_has_started(gate: Gate, client: RedisClient) -> None:
    await client.execute("SET", KEY, "0.2")
    await reads(gate, 0.2)
    woken: list[int] = []
    gate.subscribe(lambda: woken.append(gate.permits(WORKERS)))
    running = [await gate.admit(CANDIDATE) for _ in range(3)]
    assert [type(verdict) for verdict in running] == [Continue, Continue, Refuse]
    assert gate.state().reason == "the budget 0.2 lets 2 run at once"
    assert isinstance(running[0], Continue)
    assert isinstance(running[1], Continue)
    running[0].ticket.release()
    running[0].ticket.release()
    running[1].ticket.refund()
    assert woken == [1, 2]


async def test_a_budget_that_falls_cuts_nothing_off_and_one_that_rises_wakes(
    gate: Gate, client: RedisClient
) -> None:
    await client.execute("SET", KEY, "0.3")
    await reads(gate, 0.3)
    running = [await gate.admit(CANDIDATE) for _ in range(3)]
    await client.execute("SET", KEY, "0.1")
    await reads(gate, 0.1)
    for verdict in running:
        assert gate.permits(WORKERS) == 0
        assert isinstance(verdict, Continue)
        verdict.ticket.release()
    assert gate.permits(WORKERS) == 1
    woken = asyncio.Event()
    gate.subscribe(woken.set)
    await client.execute("SET", KEY, "1.0")
    await asyncio.wait_for(woken.wait(), 60)
    assert gate.permits(WORKERS) == WORKERS


async def test_a_change_is_heard_soon_while_work_waits(gate: Gate, client: RedisClient) -> None:
    await reads(gate, 1.0)

    async def all_are_heard_soon() -> bool:
        began = time.monotonic()
        for budget in (0.5, 0.0, 0.5, 0.0, 0.5):
            await client.execute("SET", KEY, str(budget))
            await reads(gate, budget)
        return time.monotonic() - began < 2 * IDLE_INTERVAL  # 5 where nobody waits

    await eventually(all_are_heard_soon)  # a busy machine may take longer, but not every time


async def test_one_read_for_all_queues_and_few_when_nobody_waits(
    redis_url: str, client: RedisClient
) -> None:
    async with gates(redis_url, 20) as many:
        for gate in many:
            await reads(gate, 1.0)
        await asyncio.sleep(EAGER_SECONDS)
        before, began = await _gets(client), time.monotonic()
        await asyncio.sleep(4 * IDLE_INTERVAL)
        took = time.monotonic() - began
        assert await _gets(client) - before <= took / IDLE_INTERVAL + 1
        before, began = await _gets(client), time.monotonic()
        while (took := time.monotonic() - began) < 1:
            for gate in many:
                gate.permits(WORKERS)
            await asyncio.sleep(0.01)
        assert await _gets(client) - before <= took / 0.07 + 1


async def _gets(client: RedisClient) -> int:
    for line in (await client.execute("INFO", "commandstats")).decode().splitlines():
        if line.startswith("cmdstat_get:"):
            return int(line.split("calls=")[1].split(",")[0])
    return 0


async def test_another_key_at_another_place(redis_url: str, client: RedisClient) -> None:
    await client.execute("SET", "mine", "0.25")
    address = redis_url.removeprefix("redis://").removesuffix("/0")
    async with gates("", budget_key="mine", address=address) as (gate,):
        await reads(gate, 0.25)


async def test_a_redis_that_is_away_or_hangs_closes_and_comes_back(
    redis_server: RedisServer,
) -> None:
    async with gates(redis_server.url) as (gate,):
        await reads(gate, 1.0)
        redis_server.kill()
        state = await has(gate, lambda state: not state.available)
        assert state.budget == 0.0
        await asyncio.to_thread(redis_server.start)
        await reads(gate, 1.0)
        os.kill(redis_server.pid, signal.SIGSTOP)
        await has(gate, lambda state: not state.available)
        assert gate.permits(WORKERS) == 0
        os.kill(redis_server.pid, signal.SIGCONT)
        await reads(gate, 1.0)


async def test_a_gate_that_has_not_read_yet_is_closed(redis_url: str) -> None:
    context = GateContext(prometheus=None, clock=SystemClock(), redis_url=redis_url)
    gate = build_gate(RedisGate(), context, workers=LiveNumber(WORKERS))
    assert (gate.budget(), gate.permits(WORKERS)) == (0.0, 0)
    assert gate.state().reason == "not read yet"
