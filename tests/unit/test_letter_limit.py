"""The limit of the dead-letter queue: what is dropped is counted, and an outage ends nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from async_processor.settlement.letter_limit import LetterLimit
from async_processor.telemetry.metrics import Metrics
from async_processor.testing.clock import ManualClock
from async_processor.testing.eventually import until
from async_processor.testing.flaky import FlakyTransport
from async_processor.testing.memory_probe import MemoryProbe, memory_probe

DEAD = "dead-letter-list"
DROPPED = b"llm_d_async_async_dead_letters_dropped_total"


@pytest.fixture
async def probe() -> AsyncIterator[MemoryProbe]:
    async with memory_probe() as probe:
        yield probe


async def test_the_oldest_are_dropped_and_counted_again_and_again(probe: MemoryProbe) -> None:
    clock, metrics = ManualClock(), Metrics()
    transport = FlakyTransport(await probe.replica())
    transport.fail("trim_dead_letters")
    letters = LetterLimit(transport, clock, metrics, limit=2, interval=5)
    for number in range(5):
        probe.broker.push(DEAD, b"%d" % number)
    running = asyncio.create_task(letters.run())

    await until(lambda: clock.sleepers > 0)
    assert len(probe.broker.items(DEAD)) == 5, "the broker was away"
    await clock.advance(10)
    await until(lambda: probe.broker.items(DEAD) == (b"3", b"4"))
    assert DROPPED + b" 3.0" in metrics.exposition()
    running.cancel()


async def test_without_a_limit_all_are_kept(probe: MemoryProbe) -> None:
    clock, metrics = ManualClock(), Metrics()
    letters = LetterLimit(await probe.replica(), clock, metrics, limit=0, interval=5)
    probe.broker.push(DEAD, b"1")
    running = asyncio.create_task(letters.run())
    await until(lambda: clock.sleepers > 0)
    assert len(probe.broker.items(DEAD)) == 1
    running.cancel()
