"""What a gate reads of the simulated pod, beside what it reads of vLLM under the same load.

The load saturates one server: thirty requests at once, of which four run and whose answers do not
all fit into the cache. The simulated pod gets the step time that vLLM's own metrics tell (the mean
time between two tokens); everything else follows from its model.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Final

import httpx
import msgspec

from async_processor.sim.engine import EngineSettings
from benchmarks.gauges import Page, pages, sampled
from benchmarks.report import Cell, Report
from benchmarks.simulated_pool import simulated_pool
from benchmarks.vllm_installation import Installation
from benchmarks.vllm_servers import MODEL, Shape, vllm_servers

REQUESTS: Final = 30
OUTPUT_TOKENS: Final = 400
PROMPT_TOKENS: Final = 41
QUEUED: Final = 20
_EVERY: Final = 0.05
_TIMEOUT: Final = 300.0
_BETWEEN_TOKENS: Final = "vllm:inter_token_latency_seconds"


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What the gates read at one moment, `seconds` after the look before.

    Means are over time: a busy server is looked at less often than one with little to do.
    """

    seconds: float = 0.0
    running: float
    waiting: float
    kv_usage: float


class Readings(msgspec.Struct, frozen=True, kw_only=True):
    """One load from its first to its last answer; `step` is the mean time between two tokens."""

    looks: Sequence[Look]
    statuses: Mapping[int, int]
    preemptions: float
    seconds: float
    step: float


async def vllm_readings(folder: Path) -> Report:
    """Load vLLM, then the simulated pod; each with an endless queue and with a bounded one."""
    installation = Installation(folder)
    await installation.prepare()
    rows: list[Mapping[str, Cell]] = []
    with tempfile.TemporaryDirectory(prefix="benchmark-") as logs:
        for shape in (Shape(), Shape(max_num_queued_reqs=QUEUED)):
            async with vllm_servers(installation, Path(logs), 1, shape) as (url,):
                await loaded(url, "word " * (PROMPT_TOKENS - 1), requests=2)  # warms it up
                real = await loaded(url, "word " * (PROMPT_TOKENS - 1))
            engine = simulated(shape, step=real.step)
            async with simulated_pool(Path(logs), pods=1, engine=engine) as pool:
                model = await loaded(pool.pod_urls[0], "word" * (PROMPT_TOKENS - 1))
            rows += compared(real, model, queued=shape.max_num_queued_reqs)
    title = (
        f"Gate readings of vLLM and of the simulated pod: {REQUESTS} requests of {OUTPUT_TOKENS}"
        f" tokens, max_num_seqs {Shape().max_num_seqs}, {Shape().num_gpu_blocks_override} blocks of"
        f" {Shape().block_size}"
    )
    return Report(name="vllm-readings", title=title, rows=rows)


def simulated(shape: Shape, *, step: float) -> EngineSettings:
    """The same pod; a step takes `step` seconds, whatever is in it."""
    return EngineSettings(
        max_num_seqs=shape.max_num_seqs,
        max_model_len=shape.max_model_len,
        block_size=shape.block_size,
        num_gpu_blocks=shape.num_gpu_blocks_override,
        max_num_queued_reqs=shape.max_num_queued_reqs,
        prefill_tokens_per_second=1e6,
        step_seconds=step,
        step_seconds_per_sequence=1e-9,
    )


async def loaded(url: str, prompt: str, *, requests: int = REQUESTS) -> Readings:
    """Send the load to one server and look at its metrics until it is done."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=_TIMEOUT, limits=limits) as client:
        before = await _page(client, url)
        start = time.monotonic()
        async with sampled(_look(client, url), every=_EVERY) as samples:
            statuses = await asyncio.gather(*(_call(client, url, prompt) for _ in range(requests)))
            seconds = time.monotonic() - start
        after = await _page(client, url)
    return Readings(
        looks=list(_busy(samples.seen)),
        statuses=Counter(statuses),
        preemptions=_gained(before, after, "vllm:num_preemptions_total"),
        seconds=seconds,
        step=_gained(before, after, f"{_BETWEEN_TOKENS}_sum")
        / _gained(before, after, f"{_BETWEEN_TOKENS}_count"),
    )


def _busy(seen: Sequence[tuple[float, Look]]) -> Iterator[Look]:
    """The looks at a server that runs something."""
    for (before, _), (at, look) in pairwise([(0.0, None), *seen]):
        if look is not None and look.running:
            yield msgspec.structs.replace(look, seconds=at - before)


async def _call(client: httpx.AsyncClient, url: str, prompt: str) -> int:
    body = {"model": MODEL, "prompt": prompt, "max_tokens": OUTPUT_TOKENS, "ignore_eos": True}
    return (await client.post(f"{url}/v1/completions", json=body)).status_code


async def _page(client: httpx.AsyncClient, url: str) -> Page:
    (page,) = await pages(client, [f"{url}/metrics"])
    return page


def _look(client: httpx.AsyncClient, url: str) -> Callable[[], Awaitable[Look]]:
    async def look() -> Look:
        page = await _page(client, url)
        return Look(
            running=page.sum("vllm:num_requests_running"),
            waiting=page.sum("vllm:num_requests_waiting"),
            kv_usage=page.sum("vllm:kv_cache_usage_perc"),
        )

    return look


def _gained(before: Page, after: Page, metric: str) -> float:
    return after.sum(metric) - before.sum(metric)


def compared(real: Readings, model: Readings, *, queued: int | None) -> list[Mapping[str, Cell]]:
    """One row for each figure that a gate, or whoever sets one up, looks at."""
    queue = "endless" if queued is None else f"at most {queued}"
    figures = [(_figures(real)), (_figures(model))]
    return [
        {"what": what, "queue": queue, "vLLM": figures[0][what], "simulator": figures[1][what]}
        for what in figures[0]
    ]


def _figures(readings: Readings) -> Mapping[str, Cell]:
    looks = readings.looks
    running, waiting = [each.running for each in looks], [each.waiting for each in looks]
    usage, seconds = [each.kv_usage for each in looks], [each.seconds for each in looks]
    mean = partial(fmean, weights=seconds)
    return {
        "running: mean, most": f"{mean(running):.2f}, {max(running):.0f}",
        "waiting: mean, most": f"{mean(waiting):.1f}, {max(waiting):.0f}",
        "KV use: mean, least, most": f"{mean(usage):.2f}, {min(usage):.2f}, {max(usage):.2f}",
        "preemptions": int(readings.preemptions),
        "answers 200, 503": f"{readings.statuses.get(200, 0)}, {readings.statuses.get(503, 0)}",
        "seconds": readings.seconds,
        "ms between tokens": readings.step * 1000,
    }
