"""SIGTERM with two hundred calls under way: they may end, and what may not is taken over at once.

The leases outlive the tests, so whatever another replica starts was given back to it.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable

import pytest

from async_processor.producer import Producer, Submission
from async_processor.testing.daemons import DaemonProcess
from async_processor.testing.eventually import until
from async_processor.testing.gateway import Gateway

Fleet = Callable[..., DaemonProcess]

RUNNING = 200
WAITING = 20
SLOW = 60.0
"""Seconds that a slow machine may take for two hundred calls."""


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    async with Gateway(hold=True) as gateway:
        yield gateway


def replica(fleet: Fleet, gateway: Gateway, *, drain_timeout: str = "5m") -> DaemonProcess:
    transport = {"lease_ttl": "5m"}
    return fleet(gateway.url, workers=RUNNING, transport=transport, drain_timeout=drain_timeout)


async def submit(producer: Producer, count: int) -> set[str]:
    handles = await producer.submit_many(
        Submission(payload={"prompt": "hi"}, deadline="1h") for _ in range(count)
    )
    return {handle.id for handle in handles}


async def all_results(producer: Producer, ids: set[str]) -> None:
    """One result each, and not one more."""
    left = set(ids)
    async with producer.results() as reader:
        while left:
            taken = await anext(reader)
            left.remove(taken.result.id)
            await taken.ack()
    assert not [taken async for taken in producer.results(follow=False)]


def answer_all(gateway: Gateway) -> None:
    for arrival in gateway.arrivals:
        arrival.answer()


async def test_calls_under_way_end_in_a_drain_and_the_rest_goes_to_others(
    fleet: Fleet, producer: Producer, gateway: Gateway
) -> None:
    first, second = replica(fleet, gateway), replica(fleet, gateway)
    await first.start()
    ids = await submit(producer, RUNNING + WAITING)
    await until(lambda: len(gateway.open) == RUNNING, within=SLOW)
    first.send(signal.SIGTERM)
    await until(lambda: bool(first.events("draining")), within=SLOW)
    await second.start()
    await until(lambda: len(gateway.open) == RUNNING + WAITING, within=SLOW)

    answer_all(gateway)

    assert await first.ended() == 0
    await all_results(producer, ids)
    assert len(gateway.arrivals) == RUNNING + WAITING, "nothing was executed twice"


async def test_calls_that_outlast_the_drain_are_started_elsewhere(
    fleet: Fleet, producer: Producer, gateway: Gateway
) -> None:
    first, second = replica(fleet, gateway, drain_timeout="500ms"), replica(fleet, gateway)
    await first.start()
    ids = await submit(producer, RUNNING)
    await until(lambda: len(gateway.open) == RUNNING, within=SLOW)
    await second.start()

    assert await first.terminate() == 0

    await until(lambda: len(gateway.arrivals) == 2 * RUNNING, within=SLOW)
    answer_all(gateway)
    await all_results(producer, ids)


async def test_a_second_signal_gives_everything_back_at_once(
    fleet: Fleet, producer: Producer, gateway: Gateway
) -> None:
    first, second = replica(fleet, gateway), replica(fleet, gateway)
    await first.start()
    ids = await submit(producer, RUNNING)
    await until(lambda: len(gateway.open) == RUNNING, within=SLOW)
    await second.start()
    first.send(signal.SIGTERM)
    await until(lambda: bool(first.events("draining")), within=SLOW)

    assert await first.terminate() == 0

    await until(lambda: len(gateway.arrivals) == 2 * RUNNING, within=SLOW)
    answer_all(gateway)
    await all_results(producer, ids)
