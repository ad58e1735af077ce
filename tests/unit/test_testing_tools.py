"""The tests' own tools keep their word: a clock that stands still, a transport that fails."""

from __future__ import annotations

import asyncio

import pytest

from async_processor.errors import BrokerUnavailable
from async_processor.testing.clock import ManualClock
from async_processor.testing.eventually import eventually
from async_processor.testing.flaky import Fault, FlakyTransport
from async_processor.testing.memory_probe import MemoryProbe
from async_processor.testing.stage import QUEUE, RESULTS, answer, claim_one, ids, submit
from async_processor.transport.base import Settlement


async def test_sleepers_wake_in_the_order_of_their_times() -> None:
    clock, woken = ManualClock(), list[tuple[str, float]]()

    async def sleep(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.monotonic()))

    async with asyncio.TaskGroup() as tasks:
        for name, seconds in (("c", 3.0), ("a", 1.0), ("b", 2.0), ("a2", 1.0)):
            tasks.create_task(sleep(name, seconds))
        await clock.advance(0.5)
        assert (woken, clock.sleepers) == ([], 4)
        await clock.advance(2.0)
        assert woken == [("a", 1.0), ("a2", 1.0), ("b", 2.0)]
        await clock.advance(10.0)
    assert woken[-1] == ("c", 3.0)
    assert clock.monotonic() == 12.5


async def test_a_sleeper_that_sleeps_again_is_woken_in_the_same_advance() -> None:
    clock, ticks = ManualClock(), list[float]()

    async def tick() -> None:
        for _ in range(3):
            await clock.sleep(1.0)
            ticks.append(clock.now())

    start = clock.now()
    task = asyncio.create_task(tick())
    await clock.advance(3.0)
    await task
    assert ticks == [start + 1, start + 2, start + 3]


async def test_a_cancelled_sleeper_is_forgotten() -> None:
    clock = ManualClock()
    task = asyncio.create_task(clock.sleep(1.0))
    await clock.advance(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert clock.sleepers == 0
    await clock.advance(5.0)


def test_hearing_the_brokers_time_moves_the_wall_clock_only() -> None:
    clock = ManualClock(now=100.0)
    clock.synchronise(250.0)
    assert (clock.now(), clock.monotonic()) == (250.0, 0.0)


async def test_waiting_on_a_manual_clock_ends_when_it_says_so() -> None:
    clock = ManualClock()
    replica = await MemoryProbe(clock).replica()
    waiting = asyncio.create_task(replica.wait_for_work(QUEUE, 30.0))
    await clock.advance(29.0)
    assert not waiting.done()
    await clock.advance(1.0)
    assert await waiting is False


async def test_a_call_that_fails_before_it_took_effect_changes_nothing() -> None:
    probe = MemoryProbe()
    flaky = FlakyTransport(await probe.replica())
    await submit(probe, "r-1")
    flaky.fail("claim")
    with pytest.raises(BrokerUnavailable):
        await flaky.claim(QUEUE, 1, suspects=False)
    assert ids([await claim_one(flaky)]) == ["r-1"]


async def test_a_lost_answer_leaves_its_effect() -> None:
    probe = MemoryProbe()
    flaky = FlakyTransport(await probe.replica())
    await submit(probe, "r-1")
    flaky.fail("claim", Fault.AFTER)
    with pytest.raises(BrokerUnavailable):
        await flaky.claim(QUEUE, 1, suspects=False)
    assert not await flaky.claim(QUEUE, 1, suspects=False)
    assert (await flaky.backlog(QUEUE, ())).leased == 1


async def test_an_outage_fails_every_call_but_keeps_the_outcome() -> None:
    probe = MemoryProbe()
    flaky = FlakyTransport(await probe.replica())
    await submit(probe, "r-1")
    delivery = await claim_one(flaky)
    flaky.disconnect()
    for call in (flaky.ping, flaky.promote_retries, lambda: flaky.reclaim(QUEUE)):
        with pytest.raises(BrokerUnavailable):
            await call()
    settling = asyncio.create_task(flaky.settle(delivery, answer(delivery)))
    await asyncio.sleep(0)
    assert not await probe.results(RESULTS)
    flaky.reconnect()
    assert await settling is Settlement.DONE
    assert len(await probe.results(RESULTS)) == 1
    await flaky.ping()


async def test_eventually_gives_up() -> None:
    async def never() -> bool:
        return False

    with pytest.raises(TimeoutError):
        await eventually(never, within=0.05)
