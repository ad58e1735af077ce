"""A replaced gate is stopped when nobody can hold a ticket of it any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest

from async_processor.admission.base import Gate
from async_processor.daemon.retirement import INTERVAL, Retirement
from async_processor.settlement.held import Held, Holdings, Phase
from async_processor.testing.clock import ManualClock
from async_processor.testing.messages import message
from async_processor.transport.base import Delivery
from async_processor.wire.envelope import read


class Gauges:
    def moved(self, before: Phase | None, after: Phase | None) -> None: ...


class Stoppable:
    """What a gate is to its retirement."""

    def __init__(self) -> None:
        self.stops = 0

    async def stop(self) -> None:
        self.stops += 1


class Stage:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.holdings = Holdings()
        self.retirement = Retirement(self.holdings, self.clock)

    def claim(self, queue_name: str, token: str) -> Held:
        body = message(token, deadline=self.clock.now() + 100)
        delivery = Delivery(
            queue_name=queue_name, token=token, body=body, score=0.0, deliveries=0, claimed_at=0.0,
            message=read(body),
        )  # fmt: skip
        held = Held(delivery, Gauges(), claimed_at=0.0)
        self.holdings.add(held)
        return held

    def retire(self, *queue_names: str) -> Stoppable:
        """A gate that these queues have asked is replaced."""
        gate = Stoppable()
        for name in queue_names:
            self.retirement.asks(name, [cast("Gate", gate)])
        self.retirement.add([cast("Gate", gate)])
        return gate

    async def look(self) -> None:
        """Let the retirement look once at what is still held."""
        await self.clock.advance(INTERVAL)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    running = asyncio.create_task(made.retirement.run())
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_it_waits_for_the_claims_that_there_were(stage: Stage) -> None:
    held = stage.claim("q", "before")
    gate = stage.retire("q")
    stage.claim("q", "after")
    await stage.look()
    assert gate.stops == 0
    stage.holdings.remove(held)
    await stage.look()
    assert gate.stops == 1
    assert not len(stage.retirement)


async def test_it_does_not_wait_for_those_who_never_asked(stage: Stage) -> None:
    stage.claim("other", "long")
    gate = stage.retire("q")
    await stage.look()
    assert gate.stops == 1


async def test_it_waits_for_a_queue_that_has_moved_away_since(stage: Stage) -> None:
    held = stage.claim("moved", "long")
    gate = stage.retire("moved", "q")
    await stage.look()
    assert gate.stops == 0
    stage.holdings.remove(held)
    await stage.look()
    assert gate.stops == 1
