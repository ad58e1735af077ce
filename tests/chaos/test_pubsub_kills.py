"""Two thousand requests on Pub/Sub, three daemons, one killed every second: none is missing. And a
daemon that was frozen writes nothing over the result of whoever took over."""

from __future__ import annotations

import signal
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
KILLS = 15
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


async def test_a_daemon_that_was_frozen_writes_nothing_over_its_heirs_result(
    host: str, tmp_path: Path
) -> None:
    """The same message runs in two daemons at once; the lease says whose result stands."""
    scene = PubSubScene(host)
    await scene.open()
    async with SimulatedPool(latency=2.0) as pool:
        frozen, heir = fleet(tmp_path, pubsub_settings(pool.url), 2)
        async with frozen:
            await scene.submit(*requests(1))
            await until(lambda: pool.ledger.total == 1)
            frozen.send(signal.SIGSTOP)
            async with heir:
                await until(lambda: pool.ledger.total == 2, within=40)
                await scene.answered(1)
                frozen.send(signal.SIGCONT)
                # It ends when all that it holds is settled, one way or the other.
                assert await frozen.terminate() == 0
                assert await heir.terminate() == 0
        assert not await doubles(scene)
        assert len(scene.answers) == 1
    await scene.close()
