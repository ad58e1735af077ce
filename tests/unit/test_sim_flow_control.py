"""A saturated router passes calls on, drops them, or holds them in order until there is room."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from async_processor.sim.flow_control import DroppedReason, FlowControl, Mode
from async_processor.testing.clock import ManualClock


class Bench:
    """Flow control over a saturation that the test sets."""

    def __init__(self, mode: Mode, *, ttl: float = 60.0) -> None:
        self.saturation = 0.0
        self.clock = ManualClock()
        self.control = FlowControl(
            mode, saturation=lambda: self.saturation, ttl=ttl, clock=self.clock
        )


@pytest.fixture
async def holding() -> AsyncIterator[Bench]:
    bench = Bench(Mode.HOLD)
    task = asyncio.create_task(bench.control.run())
    yield bench
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.parametrize("mode", list(Mode))
async def test_with_room_every_mode_lets_calls_through(mode: Mode) -> None:
    assert await Bench(mode).control.admit() is None


async def test_off_lets_calls_through_a_saturated_pool() -> None:
    bench = Bench(Mode.OFF)
    bench.saturation = 5.0
    assert await bench.control.admit() is None


async def test_shed_drops_at_once() -> None:
    bench = Bench(Mode.SHED)
    bench.saturation = 1.0
    assert await bench.control.admit() is DroppedReason.SATURATED


async def test_hold_keeps_calls_in_order_until_there_is_room(holding: Bench) -> None:
    holding.saturation = 1.0
    order: list[int] = []

    async def call(number: int) -> None:
        assert await holding.control.admit() is None
        order.append(number)

    calls = [asyncio.create_task(call(number)) for number in range(3)]
    await holding.clock.advance(1)
    assert order == []
    assert holding.control.queue_size == 3
    holding.saturation = 0.9
    await holding.clock.advance(0.1)
    await asyncio.gather(*calls)
    assert order == [0, 1, 2]
    assert holding.control.queue_size == 0


async def test_a_held_call_whose_client_leaves_is_forgotten(holding: Bench) -> None:
    holding.saturation = 1.0
    call = asyncio.create_task(holding.control.admit())
    await holding.clock.advance(0.1)
    call.cancel()
    await asyncio.wait([call])
    assert holding.control.queue_size == 0


async def test_a_call_that_is_held_too_long_is_dropped() -> None:
    bench = Bench(Mode.HOLD, ttl=0.01)
    bench.saturation = 1.0
    assert await bench.control.admit() is DroppedReason.EXPIRED
    assert bench.control.queue_size == 0
