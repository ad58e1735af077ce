"""Two thousand requests on Pub/Sub, three daemons, one killed every second: none is missing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from async_processor.sim.pool import SimulatedPool
from async_processor.testing.eventually import until
from async_processor.testing.pubsub_emulator import PubSubEmulator, emulator_binary
from async_processor.testing.pubsub_fake import PubSubFake
from async_processor.testing.pubsub_fleet import (
    doubles,
    fleet,
    kill_in_turn,
    pubsub_settings,
    requests,
)
from async_processor.testing.pubsub_scene import PubSubScene

REQUESTS = 2000
KILLS = 30
WORKERS = 16


@pytest.fixture(params=["fake", "emulator"])
async def host(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[str]:
    if request.param == "emulator" and emulator_binary() is None:
        pytest.skip("the Google Cloud SDK is not installed")
    async with AsyncExitStack() as stack:
        if request.param == "emulator":
            host = stack.enter_context(PubSubEmulator()).host
        else:
            host = (await stack.enter_async_context(PubSubFake(long_poll=1.0))).host
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", host)
        yield host


@pytest.mark.timeout(400)
async def test_two_thousand_requests_and_a_kill_a_second(
    host: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = PubSubScene(host)
    await scene.open()
    async with SimulatedPool(latency=0.5) as pool, AsyncExitStack() as stack:
        daemons = fleet(tmp_path, pubsub_settings(pool.url, workers=WORKERS), 3)
        for daemon in daemons:
            await stack.enter_async_context(daemon)
        await scene.submit(*requests(REQUESTS))
        await until(lambda: pool.ledger.total >= WORKERS)
        await kill_in_turn(daemons, KILLS, every=1.0)
        found = await scene.answered(REQUESTS, within=300)
        assert {answer.status_code for answer in found.values()} == {200}
        twice = await doubles(scene)
        with capsys.disabled():
            told = f"{len(twice)} of {REQUESTS} doubled by {KILLS} kills"
            print(f"\n{told}; {pool.ledger.total} calls")  # noqa: T201
        # Only what a killed process had answered and not acknowledged can have two results.
        assert len(twice) <= KILLS * WORKERS
        assert twice.keys() <= pool.ledger.repeated().keys()
    await scene.close()
