"""The engine in time: tokens come as its steps end, and whoever stops listening frees the slot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest

from async_processor.sim.backend import Backend, ConstantBackend, ModelBackend
from async_processor.sim.engine import EngineSettings, QueueFull
from async_processor.sim.pod_metrics import PodMetrics
from async_processor.testing.clock import ManualClock

STEP = 0.02
ONE_SLOT = EngineSettings(
    max_num_seqs=1,
    max_num_queued_reqs=2,
    step_seconds=STEP,
    step_seconds_per_sequence=1e-9,
    prefill_tokens_per_second=1e9,
)


@asynccontextmanager
async def running(backend: Backend) -> AsyncIterator[None]:
    task = asyncio.create_task(backend.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def collect(backend: Backend, output_tokens: int) -> list[int]:
    return [made async for made in backend.tokens(prompt_tokens=8, output_tokens=output_tokens)]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def test_tokens_come_one_by_one_as_steps_end(clock: ManualClock) -> None:
    backend = ModelBackend(ONE_SLOT, clock=clock, metrics=PodMetrics("m"))
    async with running(backend):
        answer = asyncio.create_task(collect(backend, 4))
        await clock.advance(3.5 * STEP)
        assert not answer.done()
        assert backend.load().running == 1
        await clock.advance(STEP)
        assert answer.done()
        assert await answer == [1, 2, 3, 4]
        assert backend.load().running == 0


async def test_an_idle_engine_does_not_tick(clock: ManualClock) -> None:
    backend = ModelBackend(ONE_SLOT, clock=clock, metrics=PodMetrics("m"))
    async with running(backend):
        await clock.advance(1)
        assert clock.sleepers == 0


async def test_who_stops_listening_frees_the_slot_for_the_next(clock: ManualClock) -> None:
    backend = ModelBackend(ONE_SLOT, clock=clock, metrics=PodMetrics("m"))
    async with running(backend):
        first = asyncio.create_task(collect(backend, 400))
        second = asyncio.create_task(collect(backend, 2))
        await clock.advance(1.5 * STEP)
        assert (backend.load().running, backend.load().waiting) == (1, 1)
        first.cancel()
        await asyncio.wait([first])
        assert (backend.load().running, backend.load().waiting) == (0, 1)
        await clock.advance(4 * STEP)
        assert await second == [1, 2]


async def test_the_queue_limit_refuses(clock: ManualClock) -> None:
    backend = ModelBackend(ONE_SLOT, clock=clock, metrics=PodMetrics("m"))
    async with running(backend):
        accepted = [asyncio.create_task(collect(backend, 1)) for _ in range(2)]
        await clock.advance(0)
        with pytest.raises(QueueFull):
            await collect(backend, 1)
        await clock.advance(3 * STEP)
        assert await asyncio.gather(*accepted) == [[1], [1]]


async def test_waiting_running_and_time_reach_the_metrics(clock: ManualClock) -> None:
    metrics = PodMetrics("m")
    backend = ModelBackend(ONE_SLOT, clock=clock, metrics=metrics)
    async with running(backend):
        answers = [asyncio.create_task(collect(backend, 3)) for _ in range(2)]
        await clock.advance(1.5 * STEP)
        page = metrics.render(backend.load()).decode()
        assert 'vllm:num_requests_running{engine="0",model_name="m"} 1.0' in page
        assert 'vllm:num_requests_waiting{engine="0",model_name="m"} 1.0' in page
        await clock.advance(10 * STEP)
        await asyncio.gather(*answers)
    page = metrics.render(backend.load()).decode()
    assert 'vllm:e2e_request_latency_seconds_count{engine="0",model_name="m"} 2.0' in page
    assert 'vllm:inter_token_latency_seconds_count{engine="0",model_name="m"} 4.0' in page
    assert 'vllm:generation_tokens_total{engine="0",model_name="m"} 6.0' in page


async def test_a_constant_backend_answers_after_its_latency_whatever_the_load(
    clock: ManualClock,
) -> None:
    backend = ConstantBackend(0.5, clock=clock, metrics=PodMetrics("m"))
    answers = [asyncio.create_task(collect(backend, 16)) for _ in range(100)]
    await clock.advance(0.4)
    assert backend.load().running == 100
    await clock.advance(0.2)
    assert await asyncio.gather(*answers) == [[16]] * 100
    assert backend.load().running == 0


async def test_an_instant_backend_does_not_sleep(clock: ManualClock) -> None:
    backend = ConstantBackend(0, clock=clock, metrics=PodMetrics("m"))
    async with aclosing(backend.tokens(prompt_tokens=1, output_tokens=2)) as tokens:
        assert [made async for made in tokens] == [2]
