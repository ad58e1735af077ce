"""One way through a backlog at a simulated pool, with the pool's saturation on record."""

from __future__ import annotations

import random
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import httpx
import msgspec

from async_processor.sim.arrivals import Rhythm
from async_processor.sim.engine import EngineSettings
from async_processor.sim.flow_control import Mode
from async_processor.sim.traffic import ChatSettings, InteractiveTraffic, TrafficReport
from async_processor.testing.eventually import eventually
from async_processor.testing.prometheus import PrometheusServer
from benchmarks.contender import Contender, our_configuration
from benchmarks.gauges import pages, sampled
from benchmarks.messages import QUEUE
from benchmarks.simulated_pool import PoolUrls, simulated_pool
from benchmarks.stage import Stage, stage

SATURATION: Final = "llm_d_epp_flow_control_pool_saturation"
PODS: Final = 6
ENGINE: Final = EngineSettings(
    max_num_seqs=256,
    max_num_batched_tokens=4096,
    num_gpu_blocks=6144,
    max_num_queued_reqs=256,
    prefill_tokens_per_second=40_000,
    step_seconds=0.05,
)
PROMPT_TOKENS: Final = (200, 600)
OUTPUT_TOKENS: Final = (100, 250)
CHATS: Final = Rhythm(burst_seconds=10, pause_seconds=10, burst_rate=12, pause_rate=2)
CHAT: Final = ChatSettings(prompt_words=300, output_tokens=120)

_EVERY: Final = 0.1
_PATIENCE: Final = 600.0
_RETRIES: Final = "retry-sortedset"
_REFUSED: Final = "vllm:admission_rejections_total"


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One look: the pool's saturation, and how many requests wait in the broker."""

    saturation: float
    waiting: int


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One way through the backlog; durations in seconds."""

    seconds: float
    saturations: Sequence[float]
    shed: int
    refused: int
    interactive: TrafficReport | None


async def measured(settings: str, requests: int, workers: int, *, interactive: bool) -> Run:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-")))
        pool = await stack.enter_async_context(
            simulated_pool(folder, pods=PODS, engine=ENGINE, flow_control=Mode.SHED)
        )
        here = await stack.enter_async_context(stage())
        client = await stack.enter_async_context(httpx.AsyncClient())
        prometheus = await _prometheus(stack, pool, client) if "prometheus" in settings else ""
        configuration = _configuration(settings.replace("<metrics>", pool.metrics_url), prometheus)
        await here.lay_aside_each(payloads(requests))
        await stack.enter_async_context(
            here.processor(Contender(configuration=configuration), pool.url, workers=workers)
        )
        traffic = await stack.enter_async_context(_traffic(pool, interactive=interactive))
        samples = await stack.enter_async_context(sampled(_look(client, pool, here), every=_EVERY))
        seconds = await here.work_off(requests, patience=_PATIENCE)
        pods = await pages(client, pool.pod_metrics_urls)
        refused = int(sum(pod.sum(_REFUSED) for pod in pods))
        return Run(
            seconds=seconds,
            saturations=while_there_is_work([seen for _, seen in samples.seen]),
            shed=await _calls(here, requests) - requests - refused,
            refused=refused,
            interactive=traffic.report() if traffic else None,
        )


async def _prometheus(stack: AsyncExitStack, pool: PoolUrls, client: httpx.AsyncClient) -> str:
    """The URL of one that has scraped the pool."""
    server = stack.enter_context(PrometheusServer([pool.url.removeprefix("http://")]))

    async def scraped() -> bool:
        answer = await client.get(f"{server.url}/api/v1/query", params={"query": SATURATION})
        return bool(answer.raise_for_status().json()["data"]["result"])

    await eventually(scraped)
    return server.url


def _configuration(gate_settings: str, prometheus: str) -> str:
    text = our_configuration().replace("{type: constant}", gate_settings)
    return text + (f"prometheus: {{url: {prometheus}, cache_ttl: 1s}}\n" if prometheus else "")


def payloads(count: int) -> Iterator[bytes]:
    """Completions of various sizes; four characters are a token of the simulated pods."""
    chance = random.Random(1)
    for _ in range(count):
        yield msgspec.json.encode(
            {
                "model": "sim",
                "prompt": "word" * chance.randint(*PROMPT_TOKENS),
                "max_tokens": chance.randint(*OUTPUT_TOKENS),
            }
        )


@asynccontextmanager
async def _traffic(
    pool: PoolUrls, *, interactive: bool
) -> AsyncIterator[InteractiveTraffic | None]:
    if not interactive:
        yield None
        return
    async with InteractiveTraffic(pool.url, rhythm=CHATS, chat=CHAT, seed=1) as traffic:
        yield traffic


def _look(client: httpx.AsyncClient, pool: PoolUrls, here: Stage) -> Callable[[], Awaitable[Seen]]:
    async def look() -> Seen:
        (router,) = await pages(client, [pool.metrics_url])
        waiting = await here.ask("ZCARD", QUEUE) + await here.ask("ZCARD", _RETRIES)
        saturation = router.sum(SATURATION, {"stage": "effective"})
        return Seen(saturation=saturation, waiting=waiting)

    return look


def while_there_is_work(seen: Sequence[Seen]) -> Sequence[float]:
    """The saturations from the first look at waiting requests to the last."""
    busy = [number for number, each in enumerate(seen) if each.waiting]
    return [each.saturation for each in seen[busy[0] : busy[-1] + 1]] if busy else []


async def _calls(here: Stage, requests: int) -> int:
    """How many calls were made for these requests, all of which must have succeeded."""
    return sum(result.attempts for result in await here.succeeded(requests))
