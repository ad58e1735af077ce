"""Daemon processes on Pub/Sub that are killed: nothing is lost, and what is doubled is explained.

`tests/chaos` does the same at length, on Google's emulator too, and freezes daemons."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from async_processor.sim.pool import SimulatedPool
from async_processor.testing.eventually import until
from async_processor.testing.pubsub_fake import PubSubFake
from async_processor.testing.pubsub_fleet import (
    doubles,
    fleet,
    kill_in_turn,
    pubsub_settings,
    requests,
)
from async_processor.testing.pubsub_scene import REQUESTS_SUB, PubSubScene

WORKERS = 8


@pytest.fixture
async def fake(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PubSubFake]:
    async with PubSubFake(long_poll=1.0) as fake:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", fake.host)
        yield fake


@pytest.fixture
async def scene(fake: PubSubFake) -> AsyncIterator[PubSubScene]:
    scene = PubSubScene(fake.host)
    await scene.open()
    yield scene
    await scene.close()


async def test_killed_daemons_lose_nothing(
    fake: PubSubFake, scene: PubSubScene, tmp_path: Path
) -> None:
    kills = 4
    async with SimulatedPool(latency=0.2) as pool, AsyncExitStack() as stack:
        daemons = fleet(tmp_path, pubsub_settings(pool.url, workers=WORKERS), 2)
        for daemon in daemons:
            await stack.enter_async_context(daemon)
        await scene.submit(*requests(200))
        await until(lambda: pool.ledger.total >= WORKERS)
        await kill_in_turn(daemons, kills, every=1.0)
        found = await scene.answered(200)
        assert {answer.status_code for answer in found.values()} == {200}
        subscription = fake.broker.subscriptions[REQUESTS_SUB]
        await until(lambda: not subscription.undelivered)
        # Only what a killed process had answered and not acknowledged can have two results.
        twice = await doubles(scene)
        assert len(twice) <= kills * WORKERS
        assert twice.keys() <= pool.ledger.repeated().keys()
