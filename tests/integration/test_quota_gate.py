"""The quota gate on a real Redis: what it lets through, what it refuses into which lot, what it
gives back, and that nothing passes and nothing runs on while Redis cannot be reached."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from async_processor.admission.base import (
    OVERFLOW_LOT,
    Candidate,
    Classification,
    Continue,
    Gate,
    Reason,
    Refuse,
    Ticket,
)
from async_processor.admission.build import GateContext, build_gate
from async_processor.admission.live_number import LiveNumber
from async_processor.admission.settings import CompositeGate, LocalMaxConcurrencyGate
from async_processor.admission.settings import RedisQuotaGate as Settings
from async_processor.clock import SystemClock
from async_processor.redis_io.connect import open_client
from async_processor.redis_io.scripts import QUOTA_SLOTS, QUOTA_STARTS
from async_processor.testing.candidates import candidate
from async_processor.testing.eventually import eventually, until
from async_processor.testing.proxy import bad_network
from async_processor.testing.servers import RedisServer

SLOTS = {"mode": "concurrency", "limit": 2}
LOT = "quota:{concurrency:userid}:of:"


def of(tenant: str, request_id: str = "r-1", **fields: Any) -> Any:
    return candidate(request_id, metadata={"userid": tenant}, **fields)


@asynccontextmanager
async def quota(url: str, **settings: Any) -> AsyncIterator[Gate]:
    """A started gate as another replica would have it."""
    context = GateContext(prometheus=None, clock=SystemClock(), redis_url=url)
    gate = build_gate(Settings(**settings), context, workers=LiveNumber(8))
    async with AsyncExitStack() as stack:
        for service in (context.redis, gate):
            await service.start()
            stack.push_async_callback(service.stop)
        await until(lambda: gate.state().available)
        yield gate


async def passed(gate: Gate, *args: Any, **fields: Any) -> Ticket:
    return await asked(gate, of(*args, **fields))


async def asked(gate: Gate, request: Candidate) -> Ticket:
    verdict = await gate.admit(request)
    assert isinstance(verdict, Continue), verdict
    return verdict.ticket


async def refused(gate: Gate, *args: Any, **fields: Any) -> Refuse:
    verdict = await gate.admit(of(*args, **fields))
    assert isinstance(verdict, Refuse), verdict
    return verdict


async def keys(url: str) -> set[str]:
    client = open_client(url)
    try:
        return {key.decode() for key in await client.execute("KEYS", "*")}
    finally:
        await client.close()


async def test_slots_are_limited_per_tenant_and_come_back(redis_url: str) -> None:
    async with (
        quota(redis_url, **SLOTS, limits={"big": 3}) as gate,
        quota(redis_url, **SLOTS, limits={"big": 3}) as other,
    ):
        tickets = [await passed(gate, "a"), await passed(other, "a")]
        verdict = await refused(gate, "a")
        assert (verdict.reason, verdict.lot) == (Reason.QUOTA_EXHAUSTED, LOT + "a")
        assert verdict.message == "a is over its quota of 2"
        assert gate.state().reason == "over their quotas: a"
        assert await gate.room(LOT + "a") == 0
        for _ in range(3):
            await passed(other, "big")
        await refused(gate, "big")
        tickets[0].release()
        tickets[1].refund()

        async def both_are_free() -> bool:
            return await gate.room(LOT + "a") == 2

        await eventually(both_are_free)
        assert gate.budget() == 1.0
        assert gate.permits(7) == 7
        await passed(gate, "a")


async def test_a_ticket_ends_once(redis_url: str) -> None:
    async with quota(redis_url, **SLOTS) as gate:
        ticket = await passed(gate, "a")
        await passed(gate, "a")
        for _ in range(3):
            ticket.release()
            ticket.refund()
        assert await gate.room(LOT + "a") == 1


async def test_a_ticket_that_has_ended_keeps_nobody_alive(redis_url: str) -> None:
    class Work:
        def cut_off(self) -> None: ...

    async with quota(redis_url, **SLOTS) as gate:
        work, ticket = Work(), await passed(gate, "a")
        ticket.on_loss(work.cut_off)
        ticket.release()
        alive = weakref.ref(work)
        del work
        assert alive() is None


async def test_nothing_is_left_when_nothing_runs(redis_url: str) -> None:
    async with quota(redis_url, **SLOTS) as gate:
        (await passed(gate, "a")).release()
    assert not await keys(redis_url)


async def test_a_dead_holders_slots_come_back_one_by_one(redis_url: str) -> None:
    async with quota(redis_url, **SLOTS, window=2) as alive:
        async with AsyncExitStack() as life:
            dying = await life.enter_async_context(quota(redis_url, **SLOTS, window=2))
            await passed(dying, "a")
            await passed(alive, "a")
            await refused(alive, "a")

        async def one_is_free() -> bool:
            return await alive.room(LOT + "a") == 1

        await eventually(one_is_free)
        await passed(alive, "a")
        await refused(alive, "a")


async def test_a_long_request_keeps_its_slot(redis_url: str) -> None:
    lost: list[str] = []
    async with quota(redis_url, mode="concurrency", limit=1, window=2) as gate:
        ticket = await passed(gate, "a")
        ticket.on_loss(lambda: lost.append("a"))
        for _ in range(30):
            await asyncio.sleep(0.1)
            await refused(gate, "a")
        assert not lost
        ticket.release()
        await passed(gate, "a")


async def test_work_is_cut_off_before_a_slot_ends_that_cannot_be_renewed(
    redis_server: RedisServer,
) -> None:
    life, lost_at = 1.0, asyncio.get_running_loop().create_future()
    loop = asyncio.get_running_loop()
    async with bad_network(redis_server.port) as network:
        url = f"redis://127.0.0.1:{network.port}/0"
        async with (
            quota(url, mode="concurrency", limit=1, window=life) as gate,
            quota(redis_server.url, mode="concurrency", limit=1, window=life) as other,
        ):
            ticket = await passed(gate, "a")
            ticket.on_loss(lambda: lost_at.set_result(loop.time()))
            network.down()
            await refused(other, "a")

            async def other_gets_it() -> bool:
                return isinstance(await other.admit(of("a")), Continue)

            await eventually(other_gets_it)
            assert lost_at.done(), "the slot went to another while its first holder worked"
            late: list[str] = []
            ticket.on_loss(lambda: late.append("told"))
            assert late == ["told"]
            ticket.release()


async def test_a_slot_that_is_gone_from_redis_is_lost(redis_server: RedisServer) -> None:
    lost = asyncio.Event()
    async with quota(redis_server.url, mode="concurrency", limit=1, window=0.6) as gate:
        (await passed(gate, "a")).on_loss(lost.set)
        redis_server.flush()
        await asyncio.wait_for(lost.wait(), 60)
        await passed(gate, "a")


@pytest.mark.parametrize("mode", ["concurrency", "rate-limit"])
async def test_an_unreadable_quota_is_closed_says_so_and_opens_again(
    redis_server: RedisServer, mode: str
) -> None:
    woken = asyncio.Event()
    async with quota(redis_server.url, mode=mode, limit=1) as gate:
        gate.subscribe(woken.set)
        redis_server.kill()
        verdict = await refused(gate, "a")
        assert (verdict.reason, verdict.lot) == (Reason.ERROR, "")
        assert (gate.budget(), gate.permits(8)) == (0, 0)
        assert not gate.state().available
        assert "Redis" in gate.state().reason
        assert await gate.room(gate_lot(mode) + "a") == 0
        redis_server.start()
        await asyncio.wait_for(woken.wait(), 60)
        await passed(gate, "a")


def gate_lot(mode: str) -> str:
    return f"quota:{{{mode}:userid{':60s' if mode == 'rate-limit' else ''}}}:of:"


async def test_a_quota_on_a_redis_that_refuses_is_closed(redis_server: RedisServer) -> None:
    async with quota(redis_server.url, **SLOTS) as gate:
        client = open_client(redis_server.url)
        await client.execute("SET", "quota:{concurrency:userid}:slots:a", "of another type")
        await client.close()
        assert (await refused(gate, "a")).reason is Reason.ERROR


async def test_a_lost_answer_leaks_no_slot(redis_server: RedisServer) -> None:
    async with bad_network(redis_server.port) as network:
        url = f"redis://127.0.0.1:{network.port}/0"
        async with (
            quota(url, **SLOTS, window=1) as gate,
            quota(redis_server.url, **SLOTS, window=1) as other,
        ):
            network.lose_answer_to(QUOTA_SLOTS.digest.encode())
            assert (await refused(gate, "a")).reason is Reason.ERROR

            async def free() -> bool:
                return await other.room(LOT + "a") == 2

            await eventually(free)
            await until(lambda: gate.state().available)
            await passed(gate, "a")


async def test_who_is_cut_off_before_its_question_is_sent_leaves_no_slot_behind(
    redis_url: str,
) -> None:
    async with quota(redis_url, **SLOTS) as gate:
        asking = asyncio.create_task(gate.admit(of("a")))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert await gate.room(LOT + "a") == 2


async def test_who_is_cut_off_while_it_asks_leaves_no_slot_behind(redis_url: str) -> None:
    async with quota(redis_url, **SLOTS) as gate:
        asking = asyncio.create_task(gate.admit(of("a")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert await gate.room(LOT + "a") == 2


async def test_starts_are_limited_in_every_window(redis_url: str) -> None:
    async with quota(redis_url, limit=2, window=2) as gate:
        await passed(gate, "a", "r-1")
        await passed(gate, "a", "r-2")
        verdict = await refused(gate, "a", "r-3")
        assert verdict.lot == "quota:{rate-limit:userid:2s}:of:a"
        await passed(gate, "b", "r-3")

        async def room() -> bool:
            return await gate.room(verdict.lot) == 2

        await eventually(room)
        await passed(gate, "a", "r-3")


async def test_a_retry_costs_no_second_token(redis_url: str) -> None:
    async with quota(redis_url, limit=1, window=2) as gate:
        retry = {"internal": {"retry_count": 3, "request_queue_name": "q"}}
        (await passed(gate, "a", "r-1", token="t")).release()
        await passed(gate, "a", "r-1", token="t", **retry)
        await refused(gate, "a", "r-2", token="t")
        await asyncio.sleep(2.1)
        await passed(gate, "a", "r-2", token="t")
        await passed(gate, "a", "r-1", token="t", **retry)
        await refused(gate, "a", "r-1", token="other")
        await refused(gate, "a", "r-1", token="t", payload={"prompt": "another"})


async def test_what_has_its_result_is_charged_again(redis_url: str) -> None:
    async with quota(redis_url, limit=2) as gate, quota(redis_url, limit=2) as other:
        for replica in (gate, other):
            (await passed(replica, "a", "r-1")).release()  # an attempt that failed
            ticket = await passed(replica, "a", "r-1")
            ticket.release()
            ticket.settled()
            assert await replica.room(gate_lot("rate-limit") + "a") == (replica is gate)
        await refused(gate, "a", "r-1")
        names = await keys(redis_url)
        assert not any(":charged:" in name for name in names)


async def test_the_same_bytes_beside_what_runs_are_another_request(redis_url: str) -> None:
    async with quota(redis_url, limit=2) as gate:
        running = await passed(gate, "a", "r-1")
        copy = await passed(gate, "a", "r-1")
        await refused(gate, "a", "r-1")
        copy.refund()
        await passed(gate, "a", "r-2")
        running.release()
        del running
        await passed(gate, "a", "r-1")  # a retry


async def test_a_forged_retry_is_charged(redis_url: str) -> None:
    async with quota(redis_url, limit=1) as gate:
        forged = {"internal": {"retry_count": 1}}
        await passed(gate, "a", "r-1", **forged)
        await refused(gate, "a", "r-2", **forged)


async def test_a_refund_gives_the_token_back_but_only_of_who_paid(redis_url: str) -> None:
    async with quota(redis_url, limit=1) as gate:
        request = of("a", "r-1")
        first = await asked(gate, request)
        again = await asked(gate, request)
        again.refund()
        await refused(gate, "a", "r-2")
        first.refund()
        ticket = await passed(gate, "a", "r-2")
        ticket.release()
        ticket.refund()
        await refused(gate, "a", "r-1")


async def test_a_later_gates_refusal_costs_nothing(redis_url: str) -> None:
    context = GateContext(prometheus=None, clock=SystemClock(), redis_url=redis_url)
    chain = CompositeGate(gates=(Settings(limit=1), LocalMaxConcurrencyGate(limit=1)))
    gate = build_gate(chain, context, workers=LiveNumber(8))
    await gate.start()
    await until(lambda: gate.budget() > 0)
    held = await gate.admit(of("a", "r-1"))
    assert isinstance(held, Continue)
    for number in range(3):
        assert isinstance(await gate.admit(of("b", f"b-{number}")), Refuse)
    held.ticket.release()
    assert isinstance(await gate.admit(of("b", "b-9")), Continue)
    for service in (gate, context.redis):
        await service.stop()


@pytest.fixture
def no_collecting() -> Iterator[None]:
    """Python frees no cycles meanwhile, such as those that an error leaves of its stack."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collecting")
async def test_a_charge_whose_answer_is_lost_is_not_made_twice(redis_server: RedisServer) -> None:
    async with (
        bad_network(redis_server.port) as network,
        quota(f"redis://127.0.0.1:{network.port}/0", limit=2) as gate,
    ):
        network.lose_answer_to(QUOTA_STARTS.digest.encode())
        assert (await refused(gate, "a", "r-1")).reason is Reason.ERROR
        await until(lambda: gate.state().available)
        await passed(gate, "a", "r-1")
        await passed(gate, "a", "r-2")
        await refused(gate, "a", "r-3")


@pytest.mark.parametrize("mode", ["concurrency", "rate-limit"])
async def test_classifying_marks_and_never_refuses(redis_server: RedisServer, mode: str) -> None:
    async with quota(redis_server.url, mode=mode, limit=1, gating_mode="classifying") as gate:
        seen = [await gate.admit(of("a", f"r-{number}")) for number in range(3)]
        assert [verdict.classification for verdict in seen if isinstance(verdict, Continue)] == [
            Classification.RESERVED,
            Classification.OVERFLOW,
            Classification.OVERFLOW,
        ]
        assert all(
            isinstance(verdict, Continue) and verdict.lot == f"{OVERFLOW_LOT}{gate_lot(mode)}a"
            for verdict in seen
        )
        redis_server.kill()
        verdict = await gate.admit(of("b"))
        assert isinstance(verdict, Continue)
        assert verdict.classification is Classification.OVERFLOW
        assert gate.budget() == 1.0
        assert not gate.state().available


async def test_blocking_marks_what_it_lets_through_as_reserved(redis_url: str) -> None:
    async with quota(redis_url, **SLOTS) as gate:
        verdict = await gate.admit(of("a"))
        assert isinstance(verdict, Continue)
        assert (verdict.classification, verdict.lot) == (Classification.RESERVED, "")


async def test_requests_without_a_tenant(redis_url: str) -> None:
    async with quota(redis_url, **SLOTS) as gate:
        for _ in range(5):
            verdict = await gate.admit(candidate())
            assert isinstance(verdict, Continue)
            assert verdict.classification is Classification.NONE
    async with quota(redis_url, **SLOTS, missing_attribute="nobody") as gate:
        await gate.admit(candidate())
        await passed(gate, "nobody")
        assert isinstance(await gate.admit(candidate()), Refuse)
    async with quota(redis_url, **SLOTS, missing_attribute="refuse") as gate:
        verdict = await gate.admit(candidate())
        assert isinstance(verdict, Refuse)
        assert verdict.lot
        assert await gate.room(verdict.lot) == 0
        await passed(gate, "a")


async def test_whom_limits_do_not_name_is_not_limited(redis_url: str) -> None:
    async with quota(redis_url, mode="concurrency", limits={"a": 1}) as gate:
        for _ in range(5):
            await passed(gate, "b")
        assert (await gate.room(LOT + "b") or 0) > 1000
        await passed(gate, "a")
        await refused(gate, "a")


async def test_lots_of_others_are_not_known(redis_url: str) -> None:
    async with quota(redis_url, **SLOTS) as gate:
        for lot in ("", "a", "lane", "quota:{rate-limit:userid:60s}:of:a", OVERFLOW_LOT + LOT):
            assert await gate.room(lot) is None


async def test_prefixes_count_apart(redis_url: str) -> None:
    async with (
        quota(redis_url, **SLOTS) as gate,
        quota(redis_url, **SLOTS, prefix="other:") as other,
    ):
        for each in (gate, other):
            await passed(each, "a")
            await passed(each, "a")
            await refused(each, "a")


async def test_room_is_told_when_a_slot_frees_that_anybody_waits_for(redis_url: str) -> None:
    told: list[str] = []
    async with quota(redis_url, **SLOTS) as gate, quota(redis_url, **SLOTS) as other:
        other.on_room(told.append)
        ticket = await passed(other, "a")
        ticket.release()
        unheard = await passed(other, "b")
        unheard.release()
        assert await other.room(LOT + "c") == 2
        assert not told
        tickets = [await passed(other, "a") for _ in range(2)]
        await refused(gate, "a")
        tickets[0].release()
        await until(lambda: told == [LOT + "a"])


async def test_time_brings_room_for_a_rate_and_the_gate_says_so(redis_url: str) -> None:
    told, woken = asyncio.Event(), asyncio.Event()
    async with quota(redis_url, limit=1, window=2) as gate:
        gate.on_room(lambda _: told.set())
        gate.subscribe(woken.set)
        await passed(gate, "a", "r-1")
        verdict = await refused(gate, "a", "r-2")
        await asyncio.wait_for(told.wait(), 60)
        assert woken.is_set()
        assert await gate.room(verdict.lot) == 1


async def test_admissions_that_come_together_are_one_call(redis_url: str) -> None:
    client = open_client(redis_url)
    async with quota(redis_url, mode="concurrency", limit=1) as gate:
        await client.execute("CONFIG", "RESETSTAT")
        verdicts = await asyncio.gather(*(gate.admit(of(f"t-{n % 50}")) for n in range(200)))
        calls = await commands(client.execute)
    assert sum(isinstance(verdict, Continue) for verdict in verdicts) == 50
    assert calls <= 4
    await client.close()


async def commands(execute: Callable[..., Any]) -> int:
    """Calls of scripts since the statistics were reset."""
    lines = (await execute("INFO", "commandstats")).decode().splitlines()
    return sum(
        int(line.split("calls=")[1].split(",")[0])
        for line in lines
        if line.startswith(("cmdstat_evalsha", "cmdstat_eval:"))
    )


QUOTAS = pytest.mark.parametrize("mode", ["concurrency", "rate-limit"])


@QUOTAS
async def test_what_a_later_gate_refuses_wakes_nobody_who_waited_before(
    redis_url: str, mode: str
) -> None:
    """It would take what it gives back itself, wake itself, and so on for ever."""
    told, woken = list[str](), list[str]()
    async with quota(redis_url, mode=mode, limit=1) as gate:
        held = await passed(gate, "a", "r-1")
        await refused(gate, "a", "r-2")
        held.refund()  # with the one refused since then as its heir
        gate.on_room(told.append)
        await until(lambda: told == [gate_lot(mode) + "a"])
        gate.subscribe(lambda: woken.append("woken"))
        ticket = await passed(gate, "a", "r-2")
        ticket.refund()
        last = await passed(gate, "a", "r-2")  # an answer that came after the refund's
        assert not woken
        last.refund()
