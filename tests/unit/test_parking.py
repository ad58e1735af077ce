"""A parking lot wakes one request at a time, the most urgent first, and loses no turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from async_processor.admission.base import Gate
from async_processor.dispatch import parking as parking_module
from async_processor.dispatch.parking import ParkingLot
from async_processor.listeners import Leave, Listeners


class Bell:
    """The one thing that a lot wants of a gate."""

    def __init__(self) -> None:
        self.listeners = Listeners[[]]()

    def ring(self) -> None:
        self.listeners.tell()

    def subscribe(self, wake: Callable[[], None]) -> Leave:
        return self.listeners.add(wake)


def lot() -> tuple[Bell, ParkingLot]:
    bell = Bell()
    return bell, ParkingLot(cast("Gate", bell))


async def wait(parking: ParkingLot, deadline: float, timeout: float = 5.0) -> None:
    with parking.presence():
        await parking.wait(deadline, timeout)


async def test_the_earliest_deadline_is_woken_alone() -> None:
    bell, parking = lot()
    late = asyncio.create_task(wait(parking, 20.0))
    early = asyncio.create_task(wait(parking, 10.0))
    await asyncio.sleep(0)
    bell.ring()
    await early
    assert not late.done()
    parking.wake_next()
    await late


async def test_one_that_waited_in_vain_hears_it_and_does_not_swallow_a_turn() -> None:
    bell, parking = lot()
    with pytest.raises(TimeoutError):
        await wait(parking, 10.0, 0.001)
    patient = asyncio.create_task(wait(parking, 20.0))
    await asyncio.sleep(0)
    bell.ring()
    await patient


async def test_a_turn_given_to_one_that_is_cut_off_goes_to_the_next() -> None:
    bell, parking = lot()
    first = asyncio.create_task(wait(parking, 10.0))
    second = asyncio.create_task(wait(parking, 20.0))
    await asyncio.sleep(0)
    bell.ring()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await second


async def test_a_lot_listens_to_its_gate_as_long_as_somebody_waits() -> None:
    bell, parking = lot()
    for _ in range(3):
        waiting = [asyncio.create_task(wait(parking, deadline)) for deadline in (10.0, 20.0)]
        await asyncio.sleep(0)
        assert len(bell.listeners) == 1
        bell.ring()
        await waiting[0]
        assert len(bell.listeners) == 1
        waiting[1].cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert not len(bell.listeners)


async def test_whoever_waits_asks_again_although_nobody_tells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parking_module, "LOOK_SECONDS", 0.01)
    _, parking = lot()
    with parking.presence():
        for _ in range(3):
            await parking.wait(10.0, 60.0)
