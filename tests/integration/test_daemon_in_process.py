"""The daemon's parts together, on the memory broker and real HTTP: each way a request can end."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import httpx
import pytest

from async_processor.admission.concurrency import ConcurrencyGate
from async_processor.config.load import validated
from async_processor.daemon import gate_gauges
from async_processor.daemon.build import Parts, build
from async_processor.daemon.daemon import Daemon
from async_processor.dispatch.pool import Pool
from async_processor.lifecycle import FEW
from async_processor.sim.pool import SimulatedPool
from async_processor.testing.eventually import eventually, until
from async_processor.testing.memory_probe import MemoryProbe, memory_probe
from async_processor.testing.messages import message
from async_processor.transport.memory import MemoryTransport
from async_processor.transport.settings import MemorySettings
from async_processor.wire import envelope as wire
from async_processor.wire import result as results
from async_processor.wire.envelope import score
from async_processor.wire.names import active_key, cancel_key
from async_processor.wire.result import ErrorCode, Result

QUEUE = "request-sortedset"
TOKEN = "7" * 32
CLOSED = {
    "type": "endpoint-scrape",
    "url": "http://127.0.0.1:9/metrics",
    "metric": "nobody_answers",
}


class Stage:
    """A running daemon, its broker and its pool."""

    def __init__(self, probe: MemoryProbe, pool: SimulatedPool, parts: Parts) -> None:
        self.probe = probe
        self.pool = pool
        self.parts = parts
        self.running = asyncio.create_task(Daemon(parts).run())

    async def submit(self, request_id: str, *, left: float = 600.0, **fields: Any) -> None:
        deadline = time.time() + left
        fields = {"user": request_id, "prompt": "hi", "max_tokens": 4} | fields
        body = message(request_id, deadline=deadline, token=TOKEN, payload=fields)
        await self.probe.set_key(active_key(request_id), TOKEN.encode())
        await self.probe.submit(QUEUE, body, score(deadline, 0))

    async def results(self, count: int) -> Mapping[str, Result]:
        """Wait for that many results, no more and no fewer."""

        async def all_there() -> Sequence[bytes] | None:
            found = await self.probe.results("result-list")
            return found if len(found) >= count else None

        found = [results.decode(body) for body in await eventually(all_there) or ()]
        assert len(found) == count
        return {each.id: each for each in found}

    async def calls(self, count: int) -> None:
        """Wait until that many calls have reached the pool."""

        async def reached() -> bool:
            return self.pool.ledger.total >= count

        await eventually(reached)

    async def get(self, path: str) -> httpx.Response:
        async with httpx.AsyncClient(timeout=60) as client:
            return await client.get(f"http://127.0.0.1:{self.parts.health.port}{path}")

    def metric(self, name: str, **labels: str) -> float:
        text = self.parts.shared.metrics.exposition().decode()
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in text.splitlines()
            if line.startswith(f"llm_d_async_async_{name}{{") and all(w in line for w in wanted)
        )


@asynccontextmanager
async def stage(
    *,
    workers: int = 8,
    latency: float = 0.0,
    queue: Mapping[str, Any] | None = None,
    pool_gate: Mapping[str, Any] | None = None,
    **others: Any,
) -> AsyncIterator[Stage]:
    async with memory_probe() as probe, SimulatedPool(latency=latency) as pool:
        worker_pool: dict[str, Any] = {"id": "default", "workers": workers}
        if pool_gate:
            worker_pool["gate"] = pool_gate
        settings = validated(
            {
                "transport": {
                    "type": "memory",
                    "lease_ttl": 30,
                    "queues": [{"igw_base_url": pool.url, **(queue or {})}],
                },
                "worker_pools": [worker_pool],
                "retry": {"base_delay": 0.05, "max_delay": 0.2},
                "server": {"bind": "127.0.0.1", "health_port": 0, "metrics_port": 0},
                **others,
            },
            {},
        )
        transport = MemoryTransport(MemorySettings(lease_ttl=30.0), probe.broker)
        running = Stage(probe, pool, build(settings, transport=transport))

        async def serving() -> bool:
            if running.running.done():
                await running.running
            return running.parts.shared.readiness.serving

        await eventually(serving)
        try:
            yield running
        finally:
            await end_at_once(running)


async def end_at_once(running: Stage) -> None:
    """The drain is cut short."""
    if not running.running.done():
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGTERM)
    await running.running


async def test_every_request_gets_its_answer() -> None:
    async with stage() as running:
        for number in range(100):
            await running.submit(f"r-{number}")
        found = await running.results(100)
        assert all(each.status_code == 200 for each in found.values())
        assert not running.pool.ledger.repeated()
        assert running.metric("request_total") == 100
        assert running.metric("successful_requests_total") == 100
        assert running.metric("dispatched_requests_total") == 100
        assert running.metric("tokens_total", direction="output") > 0
        assert running.metric("inflight_requests") == running.metric("queue_depth") == 0
        assert running.metric("inference_latency_time_millis_count") == 100


async def test_what_fails_for_a_while_is_retried_until_it_succeeds() -> None:
    async with stage() as running:
        running.pool.faults.set(error=1, error_status=503)
        await running.submit("r-1")
        await running.calls(2)
        running.pool.faults.clear()
        found = (await running.results(1))["r-1"]
        assert found.status_code == 200
        assert found.attempts >= 3
        assert running.metric("request_total") == 1
        assert running.metric("request_retries_total") == found.attempts - 1


async def test_a_dead_gateway_is_told_of_in_status_and_in_the_result() -> None:
    dead = {"igw_base_url": "http://127.0.0.1:9"}
    async with stage(queue=dead, retry={"base_delay": 0.2, "max_delay": 0.3}) as running:
        for number in range(3):
            await running.submit(f"r-{number}", left=4)

        async def told() -> bool:
            (queue,) = (await running.get("/status")).json()["queues"]
            return "refused" in queue["why"]

        await eventually(told)
        found = await running.results(3)
        assert all(each.error_code is ErrorCode.DEADLINE_EXCEEDED for each in found.values())
        assert all("refused" in str(each.error_message) for each in found.values())


async def test_a_shed_request_counts_as_shed_and_comes_back() -> None:
    async with stage() as running:
        running.pool.faults.set(throttle=1, retry_after=0)
        await running.submit("r-1")
        await running.calls(1)
        running.pool.faults.clear()
        assert (await running.results(1))["r-1"].status_code == 200
        assert running.metric("shedded_requests_total") >= 1
        reasons = {
            reason: running.metric("shed_reason_total", reason=reason)
            for reason in ("unknown", "other")
        }
        assert reasons == {"unknown": running.metric("shedded_requests_total"), "other": 0}


async def test_a_running_call_is_cancelled_and_its_connection_closed() -> None:
    async with stage(latency=600) as running:
        await running.submit("r-1")
        await running.calls(1)
        await running.probe.set_key(cancel_key("r-1"), TOKEN.encode())
        found = (await running.results(1))["r-1"]
        assert found.error_code is ErrorCode.CANCELLED

        async def idle() -> bool:
            return running.pool.pods[0].load.running == 0

        await eventually(idle)
        assert await running.probe.get_key(active_key("r-1")) is None
        assert await running.probe.get_key(cancel_key("r-1")) is None


async def test_calls_are_cut_off_a_few_at_a_time() -> None:
    """Or the loop would do nothing else meanwhile: no lease extended, no probe answered."""
    count = 4 * FEW
    async with stage(workers=count, latency=600) as running:
        for number in range(count):
            await running.submit(f"r-{number}")
        await running.calls(count)
        held = list(running.parts.shared.holdings)
        cut_off: list[int] = []

        async def others() -> None:
            while True:
                cut_off.append(sum(each.interruption is not None for each in held))
                await asyncio.sleep(0)

        watching = asyncio.create_task(others())
        await end_at_once(running)
        watching.cancel()
        assert cut_off[-1] == len(held) == count
        assert max(after - before for before, after in pairwise(cut_off)) <= FEW


async def test_a_closed_gate_sends_nothing_and_still_answers_the_expired() -> None:
    async with stage(queue={"gate": CLOSED}) as running:
        await running.submit("r-1", left=0.5)
        found = (await running.results(1))["r-1"]
        assert found.error_code is ErrorCode.DEADLINE_EXCEEDED
        assert running.pool.ledger.total == 0
        await running.submit("r-2")

        async def counted() -> bool:
            return running.metric("gate_decisions_total", reason="gate_closed") > 0

        await eventually(counted)
        status = (await running.get("/status")).json()
        assert status["queues"][0]["backlog"] == 1
        why = status["queues"][0]["why"]
        assert "gate is closed" in why
        assert "; deadlines pass, the last " in why
        assert status["queues"][0]["gate"]["budget"] == 0


async def test_an_open_gate_that_sees_nothing_is_told_also_when_nothing_waits() -> None:
    unread = {"type": "endpoint-scrape", "url": "http://127.0.0.1:9/", "metric": "m", "fallback": 1}
    async with stage(queue={"gate": unread}) as running:

        async def told() -> bool:
            why = (await running.get("/status")).json()["queues"][0]["why"]
            return bool(
                why.startswith("the queue's gate is open although its source cannot be read (")
            )

        await eventually(told)


async def test_a_closed_gate_counts_while_work_lies_in_the_broker_and_only_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also when it lets requests wait in memory, and they have taken all slots."""

    def lets_all_be_judged(gate: ConcurrencyGate, workers: int) -> int:
        return workers

    looks: list[Pool] = []
    publish = Pool.publish_gate

    def publish_and_count(pool: Pool) -> None:
        publish(pool)
        looks.append(pool)

    monkeypatch.setattr(ConcurrencyGate, "permits", lets_all_be_judged)
    monkeypatch.setattr(Pool, "publish_gate", publish_and_count)
    monkeypatch.setattr(gate_gauges, "INTERVAL", 0.01)
    gate = {"type": "local-max-concurrency", "limit": 1, "gating_mode": "blocking"}
    async with stage(workers=2, latency=600, queue={"gate": gate}) as running:

        def closed() -> float:
            return running.metric("gate_decisions_total", reason="gate_closed")

        await running.submit("runs")
        await running.submit("waits")
        await until(lambda: running.metric("gate_waiting_requests") == 1)
        before, looked = closed(), len(looks)
        await until(lambda: len(looks) > looked + 30)
        assert closed() == before
        await running.submit("lies in the broker")
        await until(lambda: closed() > before + 3)


async def test_a_closed_pool_gate_holds_everything_in_the_broker() -> None:
    async with stage(pool_gate=CLOSED) as running:
        await running.submit("r-1", left=0.5)
        found = (await running.results(1))["r-1"]
        assert found.error_code is ErrorCode.DEADLINE_EXCEEDED
        assert running.pool.ledger.total == 0


async def test_a_waiting_pool_gate_parks_and_wakes() -> None:
    gate = {"type": "local-max-concurrency", "limit": 2, "gating_mode": "blocking"}
    async with stage(workers=8, latency=0.05, pool_gate=gate) as running:
        for number in range(12):
            await running.submit(f"r-{number}")
        assert len(await running.results(12)) == 12
        assert not running.pool.ledger.repeated()


async def test_a_refusing_gate_gives_back_and_loses_nothing() -> None:
    gate = {"type": "local-max-concurrency", "limit": 2}
    async with stage(workers=8, latency=0.05, queue={"gate": gate}) as running:
        for number in range(12):
            await running.submit(f"r-{number}")
        assert len(await running.results(12)) == 12
        assert not running.pool.ledger.repeated()


async def test_the_deadline_cuts_a_call_off() -> None:
    async with stage() as running:
        running.pool.faults.set(hang=1)
        await running.submit("r-1", left=0.8)
        found = (await running.results(1))["r-1"]
        assert found.error_code is ErrorCode.DEADLINE_EXCEEDED
        assert running.metric("exceeded_deadline_requests_total") == 1


async def test_an_unreadable_message_is_buried_and_disturbs_nobody() -> None:
    async with stage() as running:
        for body in (b"null", b"[]", b"\xff\xfe", b'{"id": "bad", "deadline": "soon"}'):
            await running.probe.submit(QUEUE, body, time.time() + 60)
        await running.submit("good")
        found = await running.results(2)
        assert found["good"].status_code == 200
        assert found["bad"].error_code is ErrorCode.INVALID_REQUEST
        letters = await running.probe.dead_letters()
        assert len(letters) == 4
        assert all(letter.reason for letter in letters)
        assert running.metric("failed_requests_total") == 4
        assert running.metric("dead_letters_total") == 4


async def test_headers_that_are_too_large_are_an_invalid_request() -> None:
    async with stage() as running:
        deadline = time.time() + 60
        body = message("r-1", deadline=deadline, token="", headers={"x-large": "x" * 40_000})
        await running.probe.submit(QUEUE, body, deadline)
        assert (await running.results(1))["r-1"].error_code is ErrorCode.INVALID_REQUEST


async def test_the_first_signal_lets_calls_end_and_gives_back_the_rest() -> None:
    async with stage(workers=2, latency=2.0) as running:
        for number in range(6):
            await running.submit(f"r-{number}")
        await running.calls(2)
        os.kill(os.getpid(), signal.SIGTERM)
        await running.running
        done = await running.results(2)
        waiting = await running.probe.waiting(QUEUE)
        assert len(done) + len(waiting) == 6
        assert not running.pool.ledger.repeated()


async def test_a_second_signal_gives_everything_back_at_once() -> None:
    async with stage(workers=2, latency=600) as running:
        for number in range(4):
            await running.submit(f"r-{number}")
        before = {_scored(pair) for pair in (await running.probe.waiting(QUEUE)).items()}
        await running.calls(2)
        os.kill(os.getpid(), signal.SIGTERM)

        async def draining() -> bool:
            return (await running.get("/readyz")).status_code == 503

        await eventually(draining)
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(120):
            await running.running
        waiting = (await running.probe.waiting(QUEUE)).items()
        assert {_scored(pair) for pair in waiting} == before
        assert await running.probe.results("result-list") == ()
        # What was sent says so, and whoever takes it over does not count it as new.
        assert sum(wire.read(body).dispatched for body, _ in waiting) == 2
        assert running.metric("request_total") == 2


def _scored(pair: tuple[bytes, float]) -> tuple[str, float]:
    body, score = pair
    return wire.read(body).request.id, score


async def test_a_side_task_that_dies_stops_the_daemon_loudly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from async_processor.lifecycle import SideTaskDied
    from async_processor.settlement.lease_keeper import LeaseKeeper

    async def die(self: LeaseKeeper) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(LeaseKeeper, "run", die)
    with pytest.raises(SideTaskDied, match="leases"):
        async with stage():
            pass
