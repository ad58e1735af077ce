"""The `redis-leased-rate` gate on a real Redis: a planner's lease is obeyed by all replicas
together, to the second and on Redis' clock, and whatever is wrong with it closes the gate."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from async_processor.admission.base import Continue, Gate, GateState, Reason, Refuse
from async_processor.admission.build import GateContext, build_gate
from async_processor.admission.leased_rate import LAPSE_SECONDS, LOOK_SECONDS
from async_processor.admission.live_number import LiveNumber
from async_processor.admission.settings import RedisLeasedRateGate
from async_processor.clock import SystemClock
from async_processor.fields import TlsSettings
from async_processor.redis_io.client import RedisClient
from async_processor.redis_io.connect import open_client
from async_processor.redis_io.leased_bucket import LeasedBucket
from async_processor.redis_io.shared import SharedClients
from async_processor.telemetry.metrics import Metrics
from async_processor.testing.candidates import CANDIDATE
from async_processor.testing.eventually import eventually, until
from async_processor.testing.servers import RedisServer

CONTROL = "drain-limit"
WORKERS = 16


class Planner:
    """Writes leases as planners do."""

    def __init__(self, client: RedisClient) -> None:
        self.client = client

    async def lease(self, rate: object, *, seconds: float = 60, **other: object) -> None:
        fields = {
            "api_version": "llm-d.ai/v1alpha1",
            "pool_id": "gpus",
            "max_admission_rps": rate,
            "valid_until_unix_ms": round((time.time() + seconds) * 1000),
            "decision_id": "d-1",
            **other,
        }
        flat = [str(part) for field in fields.items() for part in field]
        await self.client.execute("DEL", CONTROL)
        await self.client.execute("HSET", CONTROL, *flat)


@pytest.fixture
async def planner(redis_url: str) -> AsyncIterator[Planner]:
    client = open_client(redis_url)
    yield Planner(client)
    await client.close()


@asynccontextmanager
async def replica(url: str, metrics: Metrics | None = None, **settings: Any) -> AsyncIterator[Gate]:
    context = GateContext(prometheus=None, clock=SystemClock(), redis_url=url, metrics=metrics)
    configured = RedisLeasedRateGate(control_key=CONTROL, **settings)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(context.redis.stop)
        gate = build_gate(configured, context, workers=LiveNumber(WORKERS), pool="gpus")
        stack.push_async_callback(gate.stop)
        await gate.start()
        yield gate


async def has(gate: Gate, wanted: Callable[[GateState], bool]) -> GateState:
    try:
        await until(lambda: wanted(gate.state()))
    except TimeoutError:
        pytest.fail(f"the gate stays at {gate.state()}")
    return gate.state()


async def starts(gate: Gate, seconds: float) -> int:
    """How many start in that time when there is always work."""
    started, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        while gate.permits(WORKERS) and isinstance(await gate.admit(CANDIDATE), Continue):
            started += 1
        await asyncio.sleep(0.002)
    return started


async def rate_reached(gates: Sequence[Gate], rate: float, *, burst: float, share: float) -> None:
    """The rate is never passed, and reached in one of several spans of 3 seconds.

    A machine that loses a second loses its starts too, but not in every span.
    """
    counts: list[int] = []

    async def reached() -> bool:
        began = time.monotonic()
        counts[:] = await asyncio.gather(*(starts(gate, 3) for gate in gates))
        took = time.monotonic() - began
        assert sum(counts) <= rate * (took + burst)  # the bucket may be full at the beginning
        if sum(counts) >= rate * 3 * share:
            return True
        await asyncio.sleep(2 * LAPSE_SECONDS)  # so that the next span begins without permits
        return False

    await eventually(reached)
    assert min(counts) > 0


async def test_as_many_start_as_all_replicas_may_together(redis_url: str, planner: Planner) -> None:
    await planner.lease(50)
    async with replica(redis_url) as one, replica(redis_url) as other:
        await rate_reached((one, other), 50, burst=1, share=0.9)


async def test_a_slow_rate_is_kept_too(redis_url: str, planner: Planner) -> None:
    await planner.lease(4)
    async with replica(redis_url, burst_seconds=0.25) as gate:
        await rate_reached((gate,), 4, burst=0.25, share=0.75)


async def test_few_commands_are_spent_and_fewer_when_nobody_waits(
    redis_url: str, planner: Planner
) -> None:
    await planner.lease(200, seconds=600)
    async with replica(redis_url) as gate:
        await has(gate, lambda state: state.budget == 1.0)
        before, started = await _scripts(planner.client), 0
        while started <= 200:
            started += await starts(gate, 0.5)
        assert await _scripts(planner.client) - before < started / 4
        before, began = await _scripts(planner.client), time.monotonic()
        await asyncio.sleep(2)
        took = time.monotonic() - began
        assert await _scripts(planner.client) - before <= took / LOOK_SECONDS + 2


async def _scripts(client: RedisClient) -> int:
    for line in (await client.execute("INFO", "commandstats")).decode().splitlines():
        if line.startswith("cmdstat_evalsha:"):
            return int(line.split("calls=")[1].split(",")[0])
    return 0


async def test_nothing_is_taken_while_nobody_waits(redis_url: str, planner: Planner) -> None:
    await planner.lease(1)
    async with replica(redis_url) as gate:
        await has(gate, lambda state: state.budget == 1.0)
        assert not await planner.client.execute("EXISTS", f"{CONTROL}:state")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"api_version": "v2"}, "api_version is not llm-d.ai/v1alpha1"),
        ({"pool_id": "other"}, "it is for another pool than gpus"),
        ({"max_admission_rps": "fast"}, "max_admission_rps is no rate"),
        ({"max_admission_rps": "-1"}, "max_admission_rps is no rate"),
        ({"max_admission_rps": "inf"}, "max_admission_rps is no rate"),
        ({"max_admission_rps": "nan"}, "max_admission_rps is no rate"),
        ({"valid_until_unix_ms": "soon"}, "valid_until_unix_ms is no time"),
        ({"valid_until_unix_ms": "99999999999999.5"}, "valid_until_unix_ms is no time"),
        ({"valid_until_unix_ms": "1000"}, "it has expired"),
        ({"decision_id": ""}, "there is no decision_id"),
    ],
)
async def test_a_lease_that_is_wrong_closes(
    redis_url: str, planner: Planner, wrong: dict[str, Any], why: str
) -> None:
    await planner.lease(50, **wrong)
    async with replica(redis_url) as gate:
        state = await has(gate, lambda state: why in state.reason)
        assert (state.budget, state.available) == (0.0, True)
        assert await starts(gate, 0.3) == 0


async def test_without_a_lease_it_is_closed_and_one_that_comes_opens_it(
    redis_url: str, planner: Planner
) -> None:
    async with replica(redis_url) as gate:
        await has(gate, lambda state: "there is no api_version" in state.reason)
        woken = asyncio.Event()
        gate.subscribe(woken.set)
        refused = await gate.admit(CANDIDATE)
        assert isinstance(refused, Refuse)
        assert refused.reason is Reason.GATE_CLOSED
        await planner.lease(10)
        await asyncio.wait_for(woken.wait(), 60)
        assert gate.budget() == 1.0


async def test_a_rate_of_0_pauses(redis_url: str, planner: Planner) -> None:
    await planner.lease(0)
    metrics = Metrics()
    async with replica(redis_url, metrics) as gate:
        state = await has(gate, lambda state: "paused" in state.reason)
        assert state.budget == 0.0
        assert await starts(gate, 0.3) == 0
        assert 'drain_limit_lease_valid{pool_name="gpus"} 1.0' in metrics.exposition().decode()
        await planner.lease(50)
        await has(gate, lambda state: state.budget == 1.0)
        await planner.lease(0)
        await has(gate, lambda state: "paused" in state.reason)
        await asyncio.sleep(LAPSE_SECONDS)
        assert await starts(gate, 0.3) == 0


async def test_a_lease_that_ends_closes_at_once(redis_url: str, planner: Planner) -> None:
    await planner.lease(1000)
    metrics = Metrics()
    async with replica(redis_url, metrics) as gate:
        await until(lambda: gate.permits(WORKERS) > 0)
        await planner.lease(1000, seconds=1)
        await has(gate, lambda state: state.budget == 0.0)
        assert await starts(gate, 0.3) == 0
        await has(gate, lambda state: "it has expired" in state.reason)
        page = metrics.exposition().decode()
        assert 'drain_limit_lease_valid{pool_name="gpus"} 0.0' in page


async def test_the_lease_is_shown_and_0_from_the_start(redis_url: str, planner: Planner) -> None:
    metrics = Metrics()

    def shown(name: str) -> float:
        (line,) = (
            line
            for line in metrics.exposition().decode().splitlines()
            if line.startswith(f'llm_d_async_async_drain_limit_{name}{{pool_name="gpus"}}')
        )
        return float(line.split()[1])

    context = GateContext(
        prometheus=None, clock=SystemClock(), redis_url=redis_url, metrics=metrics
    )
    build_gate(
        RedisLeasedRateGate(control_key=CONTROL, pool_id="gpus"), context, workers=LiveNumber(1)
    )
    assert (shown("rps"), shown("lease_valid"), shown("valid_until_seconds")) == (0, 0, 0)
    began = time.time()
    await planner.lease(2.5, seconds=60)
    async with replica(redis_url, metrics):
        await until(lambda: shown("rps") == 2.5)
        assert shown("lease_valid") == 1
        assert began - 0.001 <= shown("valid_until_seconds") - 60 <= time.time()


async def test_permits_that_nobody_uses_lapse(redis_url: str, planner: Planner) -> None:
    await planner.lease(100)
    async with replica(redis_url) as gate:
        gate.permits(WORKERS)
        await until(lambda: gate.permits(WORKERS) > 0)
        await has(gate, lambda state: "has no permit left" in state.reason)
        refused = await gate.admit(CANDIDATE)
        assert isinstance(refused, Refuse)


async def test_a_refunded_permit_may_be_used_by_another(redis_url: str, planner: Planner) -> None:
    await planner.lease(0.1)
    async with replica(redis_url, burst_seconds=12) as gate:
        await until(lambda: gate.permits(WORKERS) == 1)
        verdict = await gate.admit(CANDIDATE)
        assert isinstance(verdict, Continue)
        woken: list[int] = []
        gate.subscribe(lambda: woken.append(gate.permits(WORKERS)))
        assert isinstance(await gate.admit(CANDIDATE), Refuse)
        verdict.ticket.refund()
        verdict.ticket.refund()
        assert woken == [1]


async def test_who_was_refused_once_is_told_when_a_permit_has_come(
    redis_url: str, planner: Planner
) -> None:
    """A parked request asks no more until then, however long the next permit takes."""
    await planner.lease(1)
    async with replica(redis_url) as gate:
        await until(lambda: gate.permits(WORKERS) == 1)
        assert isinstance(await gate.admit(CANDIDATE), Continue)
        woken = asyncio.Event()
        gate.subscribe(woken.set)
        assert isinstance(await gate.admit(CANDIDATE), Refuse)
        await asyncio.wait_for(woken.wait(), 60)
        assert isinstance(await gate.admit(CANDIDATE), Continue)


async def test_a_redis_that_is_away_closes(redis_server: RedisServer) -> None:
    client = open_client(redis_server.url)
    await Planner(client).lease(100)
    async with replica(redis_server.url) as gate:
        await has(gate, lambda state: state.budget == 1.0)
        redis_server.kill()
        state = await has(gate, lambda state: not state.available)
        assert state.budget == 0.0
        refused = await gate.admit(CANDIDATE)
        assert isinstance(refused, Refuse)
        assert refused.reason is Reason.ERROR
        await asyncio.to_thread(redis_server.start)
        await Planner(client).lease(100)
        await has(gate, lambda state: state.budget == 1.0)
    await client.close()


async def test_the_bucket_is_the_go_implementations(redis_url: str, planner: Planner) -> None:
    """Replicas of both may run side by side: the same hash, the same meaning."""
    await planner.lease(10)
    clients = SharedClients(tls=TlsSettings(), clock=SystemClock())
    bucket = LeasedBucket(
        clients.at(redis_url), control_key=CONTROL, state_key="s", pool_id="gpus", burst=2
    )
    draw = await bucket.draw(5)
    assert (draw.permits, draw.rate, draw.refused) == (5, 10.0, "")
    tokens, last = await planner.client.execute("HMGET", "s", "tokens", "last_ms")
    assert 15 <= float(tokens) < 20
    assert float(last) == pytest.approx(time.time() * 1000, abs=5000)
    ahead = round((time.time() + 3600) * 1000)
    await planner.client.execute("HSET", "s", "tokens", "0", "last_ms", str(ahead))
    draw = await bucket.draw(1)  # Redis' clock went back: nothing is refilled twice
    assert draw.permits == 0
    assert draw.wait == pytest.approx(0.1)
    await clients.stop()
