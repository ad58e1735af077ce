"""The Prometheus gates over a real Prometheus that scrapes the simulated pool every second: each
one is driven open, partly open, closed and back by the pool's load, and into every failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from async_processor.admission.base import Gate, GateState
from async_processor.admission.build import GateContext, build_gate
from async_processor.admission.live_number import LiveNumber
from async_processor.admission.settings import (
    GateSettings,
    PrometheusBudgetGate,
    PrometheusQueryGate,
    PrometheusSaturationGate,
    VllmPoolGate,
)
from async_processor.clock import SystemClock
from async_processor.sensors.settings import PrometheusSettings
from async_processor.sim.flow_control import Mode
from async_processor.sim.pod_metrics import Load
from async_processor.sim.pool import SimulatedPool
from async_processor.testing.eventually import until
from async_processor.testing.metrics_page import MetricsPage
from async_processor.testing.prometheus import PrometheusServer

WORKERS = 8
FALLBACK = 0.125
IDLE = Load(running=0)
SATURATION_BEFORE_FALLBACK = 1 - 0.2 - FALLBACK
"""The saturation that leaves the same budget as the other gates' fallback."""

GATES: dict[str, Any] = {
    "saturation": PrometheusSaturationGate(pool="sim", fallback=SATURATION_BEFORE_FALLBACK),
    "budget": PrometheusBudgetGate(pool="sim", max_concurrency=4, fallback=FALLBACK),
    "query": PrometheusQueryGate(
        query='1 - max(vllm:kv_cache_usage_perc{inference_pool="sim"})', fallback=FALLBACK
    ),
    "vllm": VllmPoolGate(selector='inference_pool="sim"', max_kv_cache=0.8, fallback=FALLBACK),
    "places": VllmPoolGate(
        selector='inference_pool="sim"', max_kv_cache=0.8, max_running_per_pod=4, fallback=FALLBACK
    ),
}


class Dial:
    """A pod's backend whose load a test sets."""

    def __init__(self) -> None:
        self.shown = IDLE

    @property
    def in_flight(self) -> int:
        return self.shown.running + self.shown.waiting

    def load(self) -> Load:
        return self.shown

    async def tokens(self, *, prompt_tokens: int, output_tokens: int) -> AsyncGenerator[int, None]:
        yield output_tokens

    async def run(self) -> None:
        await asyncio.Event().wait()


class Bench:
    """A pool of two pods with a load to set, a Prometheus, and gates that ask it."""

    def __init__(self, pool: SimulatedPool, prometheus: PrometheusServer) -> None:
        self.pool = pool
        self.prometheus = prometheus
        self.dials = [Dial(), Dial()]
        for pod, dial in zip(pool.pods, self.dials, strict=True):
            pod.backend = dial
        self.context = GateContext(
            prometheus=PrometheusSettings(url=prometheus.url, cache_ttl=0.1), clock=SystemClock()
        )

    def load(self, *loads: Load) -> None:
        for dial, load in zip(self.dials, loads, strict=True):
            dial.shown = load

    async def gate(self, settings: GateSettings) -> Gate:
        gate = build_gate(settings, self.context, workers=LiveNumber(WORKERS))
        await gate.start()
        return gate


@asynccontextmanager
async def bench_over(
    prometheus_for: Callable[..., PrometheusServer], **pool_settings: Any
) -> AsyncIterator[Bench]:
    async with AsyncExitStack() as stack:
        pool = SimulatedPool(pods=2, latency=0, **pool_settings)
        await pool.start()
        stack.push_async_callback(pool.stop)
        router, *pods = (urlsplit(url).netloc for url in (pool.url, *pool.pod_urls))
        labels = {pod: {"inference_pool": "sim"} for pod in pods}
        prometheus = await asyncio.to_thread(prometheus_for, router, *pods, labels=labels)
        bench = Bench(pool, prometheus)
        stack.push_async_callback(bench.context.sensors.stop)
        yield bench


@pytest.fixture
async def bench(prometheus_for: Callable[..., PrometheusServer]) -> AsyncIterator[Bench]:
    async with bench_over(prometheus_for) as bench:
        yield bench


async def has(gate: Gate, wanted: Callable[[GateState], bool]) -> GateState:
    try:
        await until(lambda: wanted(gate.state()))
    except TimeoutError:
        pytest.fail(f"the gate stays at {gate.state()}")
    return gate.state()


async def reads(gate: Gate, budget: float) -> None:
    await has(gate, lambda s: s.available and s.budget == pytest.approx(budget, abs=1e-6))


async def permits(gate: Gate, starts: int) -> None:
    await has(gate, lambda _: gate.permits(WORKERS) == starts)


async def unreadable(gate: Gate, why: str) -> None:
    state = await has(gate, lambda s: not s.available and why in s.reason)
    assert state.budget == pytest.approx(FALLBACK)


async def test_saturation_follows_the_pool(bench: Bench) -> None:
    gate = await bench.gate(GATES["saturation"])
    await reads(gate, 0.8)
    bench.load(Load(running=1, waiting=2), Load(running=1, waiting=3))  # of 5: 0.4 and 0.6
    await reads(gate, 0.3)
    bench.load(Load(running=1, waiting=9), Load(running=1, waiting=9))
    await reads(gate, 0.0)
    bench.load(IDLE, IDLE)
    await reads(gate, 0.8)


async def test_the_budget_follows_the_routers_queue(
    prometheus_for: Callable[..., PrometheusServer],
) -> None:
    async with bench_over(prometheus_for, flow_control=Mode.HOLD) as bench:
        gate = await bench.gate(GATES["budget"])
        await reads(gate, 0.95)
        bench.load(Load(running=1, waiting=9), Load(running=1, waiting=9))
        async with httpx.AsyncClient(timeout=60) as client, asyncio.TaskGroup() as calls:
            for held, budget in ((2, 0.7), (6, 0.2), (8, 0.0)):
                while bench.pool._flow_control.queue_size < held:
                    before = bench.pool._flow_control.queue_size
                    body = {"model": "sim", "prompt": "hi"}
                    calls.create_task(client.post(f"{bench.pool.url}/v1/completions", json=body))
                    await until(lambda n=before: bench.pool._flow_control.queue_size > n)  # type: ignore[misc]
                await reads(gate, budget)
            bench.load(IDLE, IDLE)
        await reads(gate, 0.95)


async def test_a_query_follows_the_pool(bench: Bench) -> None:
    gate = await bench.gate(GATES["query"])
    await reads(gate, 1.0)
    bench.load(Load(running=1, kv_usage=0.25), Load(running=1, kv_usage=0.75))
    await reads(gate, 0.25)
    bench.load(Load(running=1, kv_usage=1.0), IDLE)
    await reads(gate, 0.0)
    bench.load(IDLE, IDLE)
    await reads(gate, 1.0)


async def test_a_vllm_pool_follows_its_pods(bench: Bench) -> None:
    gate = await bench.gate(GATES["vllm"])
    await reads(gate, 1.0)
    bench.load(Load(running=1, kv_usage=0.4), Load(running=1, kv_usage=0.2))
    await reads(gate, (0.5 + 0.75) / 2)
    bench.load(Load(running=1, kv_usage=0.4), Load(running=9, waiting=1))
    await reads(gate, 0.0)  # any waiting request closes
    bench.load(Load(running=1, kv_usage=0.8), Load(running=1, kv_usage=0.9))
    await reads(gate, 0.0)
    bench.load(IDLE, IDLE)
    await reads(gate, 1.0)


async def test_a_vllm_pool_has_the_same_room_by_its_pages_and_by_prometheus(bench: Bench) -> None:
    limits = {"max_kv_cache": 0.8, "max_waiting_per_pod": 4, "max_running_per_pod": 10}
    asked = await bench.gate(VllmPoolGate.model_validate({"selector": 'job="test"', **limits}))
    looked = await bench.gate(VllmPoolGate.model_validate({"urls": bench.pool.pod_urls, **limits}))
    for loads, budget in (
        ((IDLE, IDLE), 1.0),
        ((Load(running=5, waiting=1, kv_usage=0.2), IDLE), (0.5 + 1) / 2),
        ((Load(running=5, waiting=3, kv_usage=0.2), Load(running=1, kv_usage=0.6)), 0.25),
        ((Load(running=50, waiting=30, kv_usage=1.0), Load(running=2)), 0.4),
        ((Load(running=10), Load(running=0, waiting=4)), 0.0),
    ):
        bench.load(*loads)
        await reads(asked, budget)
        await reads(looked, budget)
    filled = "in a pod at most: KV cache 0%, 4 waiting, 10 running"
    for gate in (asked, looked):
        await has(gate, lambda state: filled in state.reason)


async def test_a_vllm_pool_gives_out_the_free_places_of_its_pods(bench: Bench) -> None:
    limit = {"max_running_per_pod": 3}
    for pods in ({"selector": 'job="test"'}, {"urls": bench.pool.pod_urls}):
        gate = await bench.gate(VllmPoolGate.model_validate({**pods, **limit}))
        for loads, places in (
            ((IDLE, IDLE), 6),
            ((Load(running=2), Load(running=5)), 1),
            ((IDLE, Load(running=5)), 3),
            ((Load(running=3), Load(running=3)), 0),
        ):
            bench.load(*loads)
            await permits(gate, places)


async def test_a_pod_that_prometheus_cannot_scrape_counts_as_full(bench: Bench) -> None:
    gate = await bench.gate(GATES["vllm"])
    bench.load(IDLE, Load(running=1, kv_usage=0.4))
    await reads(gate, 0.75)
    await bench.pool._servers[0].stop()
    await reads(gate, 0.25)
    await bench.pool._servers[1].stop()
    await unreadable(gate, "the query gives no sample")


async def test_prometheus_down_slow_and_back(bench: Bench) -> None:
    gates = [await bench.gate(settings) for settings in GATES.values()]

    async def all_are_unreadable(why: str) -> None:
        for gate in gates:
            await unreadable(gate, why)

    async def all_are_back() -> None:
        for gate in gates:
            await has(gate, lambda state: state.available)

    await all_are_back()
    bench.prometheus.pause()
    await all_are_unreadable("no answer within 1 s")
    bench.prometheus.resume()
    await all_are_back()
    bench.prometheus.kill()
    await all_are_unreadable(bench.prometheus.url)
    await asyncio.to_thread(bench.prometheus.start)
    await all_are_back()


async def test_a_pool_that_is_gone_leaves_no_stale_value_behind(bench: Bench) -> None:
    gates = [await bench.gate(settings) for settings in GATES.values()]
    for gate in gates:
        await has(gate, lambda state: state.available)
    await bench.pool.stop()
    for gate in gates:
        await unreadable(gate, "the query gives no sample")


async def test_html_in_the_place_of_prometheus() -> None:
    async with MetricsPage("<html>sign in</html>") as page:
        page.content_type = "text/html"
        prometheus = PrometheusSettings(url=f"http://{page.target}", cache_ttl=0.1)
        context = GateContext(prometheus=prometheus, clock=SystemClock())
        for settings in GATES.values():
            gate = build_gate(settings, context, workers=LiveNumber(WORKERS))
            await gate.start()
            await unreadable(gate, "not with JSON")
        await context.sensors.stop()


POOL = 'inference_pool="sim"'
BY_NAME = 'name="sim"'


class Pages:
    """Gates over series that a test writes down."""

    def __init__(self, page: MetricsPage, context: GateContext) -> None:
        self.page = page
        self._context = context

    async def gate(self, settings: GateSettings) -> Gate:
        gate = build_gate(settings, self._context, workers=LiveNumber(WORKERS))
        await gate.start()
        return gate


@pytest.fixture
async def pages(prometheus_for: Callable[..., PrometheusServer]) -> AsyncIterator[Pages]:
    async with MetricsPage() as page:
        server = await asyncio.to_thread(prometheus_for, page.target)
        context = GateContext(
            prometheus=PrometheusSettings(url=server.url, cache_ttl=0.1), clock=SystemClock()
        )
        yield Pages(page, context)
        await context.sensors.stop()


READY = f"llm_d_epp_ready_endpoints{{{BY_NAME}}} 2\n"
OLD_READY = f"inference_pool_ready_pods{{{BY_NAME}}} 2\n"


async def test_the_cascade_takes_the_first_source_that_answers(pages: Pages) -> None:
    gate = await pages.gate(PrometheusBudgetGate(pool="sim", max_concurrency=10, baseline=0.0))
    other = '{inference_pool="other"} 99\n'
    running = f"vllm:num_requests_running{{{POOL}}} 4\nvllm:num_requests_running{other}"
    waiting = "".join(
        f'inference_pool_per_pod_queue_size{{{BY_NAME},model_server_pod="{pod}"}} {size}\n'
        for pod, size in (("a", 2), ("b", 4))
    )
    queued = f"inference_extension_flow_control_queue_size{{{POOL}}} 8\n"
    pages.page.text = OLD_READY + running
    await reads(gate, 1 - 4 / 20)
    pages.page.text += waiting
    await reads(gate, 1 - 3 / 10)
    pages.page.text += queued
    await reads(gate, 1 - 8 / 20)
    # The names of today beat the older ones, each for itself.
    pages.page.text += f'llm_d_epp_flow_control_queue_size{{{POOL},priority="0"}} 2\n'
    pages.page.text += f'llm_d_epp_flow_control_queue_size{{{POOL},priority="1"}} 4\n'
    await reads(gate, 1 - 6 / 20)
    pages.page.text += f"llm_d_epp_ready_endpoints{{{BY_NAME}}} 4\n"
    await reads(gate, 1 - 6 / 40)


async def test_router_replicas_are_taken_together(pages: Pages) -> None:
    gate = await pages.gate(PrometheusBudgetGate(pool="sim", max_concurrency=10, baseline=0.0))
    pages.page.text = "".join(
        f'llm_d_epp_ready_endpoints{{{BY_NAME},replica="{replica}"}} {ready}\n'
        f'llm_d_epp_flow_control_queue_size{{{POOL},replica="{replica}"}} {queued}\n'
        for replica, ready, queued in (("a", 2, 3), ("b", 1, 5))
    )
    await reads(gate, 1 - 8 / 20)


async def test_a_pool_without_ready_pods_is_unreadable_and_not_idle(pages: Pages) -> None:
    settings = PrometheusBudgetGate(pool="sim", fallback=FALLBACK)
    gate = await pages.gate(settings)
    pages.page.text = (
        f"llm_d_epp_ready_endpoints{{{BY_NAME}}} 0\n"
        f"llm_d_epp_flow_control_queue_size{{{POOL}}} 0\n"
        f"inference_pool_average_queue_size{{{BY_NAME}}} 0\n"
    )
    await unreadable(gate, "the query gives no sample")


async def test_namespaces_are_told_apart(pages: Pages) -> None:
    gate = await pages.gate(
        PrometheusBudgetGate(pool="sim", namespace="b", max_concurrency=10, baseline=0.0)
    )
    pages.page.text = "".join(
        f'llm_d_epp_ready_endpoints{{{BY_NAME},namespace="{namespace}"}} 1\n'
        f'llm_d_epp_flow_control_queue_size{{{POOL},namespace="{namespace}"}} {queued}\n'
        for namespace, queued in (("a", 9), ("b", 4))
    )
    await reads(gate, 1 - 4 / 10)


VLLM = f"vllm:num_requests_running{{{POOL}}} 1\nvllm:num_requests_waiting{{{POOL}}} 0\n"


async def test_the_older_name_of_the_kv_cache_is_found(pages: Pages) -> None:
    gate = await pages.gate(GATES["vllm"])
    pages.page.text = VLLM + f"vllm:gpu_cache_usage_perc{{{POOL}}} 0.6\n"
    await reads(gate, 0.25)
    pages.page.text += f"vllm:kv_cache_usage_perc{{{POOL}}} 0.4\n"
    await reads(gate, 0.5)
    pages.page.text = VLLM
    await reads(gate, 0.0)  # a pod without the series counts as full


@pytest.mark.parametrize("value", ["NaN", "+Inf"])
async def test_values_that_are_no_numbers(pages: Pages, value: str) -> None:
    pages.page.text = (
        READY
        + VLLM
        + f"llm_d_epp_flow_control_queue_size{{{POOL}}} {value}\n"
        + f'llm_d_epp_flow_control_pool_saturation{{{POOL},stage="effective"}} {value}\n'
        + f"vllm:kv_cache_usage_perc{{{POOL}}} {value}\n"
    )
    for name in ("saturation", "budget", "query"):
        await unreadable(await pages.gate(GATES[name]), "Inf" if "Inf" in value else "NaN")
    for name in ("vllm", "places"):
        await reads(await pages.gate(GATES[name]), 0.0)  # the pod counts as full


async def test_a_pod_whose_running_requests_are_no_number_counts_as_full(pages: Pages) -> None:
    cache = f"vllm:kv_cache_usage_perc{{{POOL}}} 0.4\n"
    gate = await pages.gate(GATES["places"])
    pages.page.text = cache + VLLM
    await reads(gate, 0.5)
    pages.page.text = cache + VLLM.replace("} 1", "} NaN")
    await reads(gate, 0.0)


@pytest.mark.parametrize("minutes", [-6, 20])
async def test_samples_from_another_time_do_not_count(pages: Pages, minutes: int) -> None:
    """Old ones, as of an exporter that stands still, and those of a clock that is ahead."""
    at = round((SystemClock().now() + 60 * minutes) * 1000)
    text = (
        READY
        + VLLM
        + "".join(
            f"{series} 0.1\n"
            for series in (
                f"llm_d_epp_flow_control_queue_size{{{POOL}}}",
                f'llm_d_epp_flow_control_pool_saturation{{{POOL},stage="effective"}}',
                f"vllm:kv_cache_usage_perc{{{POOL}}}",
            )
        )
    )
    pages.page.text = "".join(f"{line} {at}\n" for line in text.splitlines()) + "fresh 1\n"
    seen = await pages.gate(PrometheusQueryGate(query="fresh"))
    await reads(seen, 1.0)  # by now Prometheus has scraped the page
    for settings in GATES.values():
        await unreadable(await pages.gate(settings), "the query gives no sample")


async def test_several_series_are_unreadable_where_only_one_is_meant(pages: Pages) -> None:
    pages.page.text = 'room{a="1"} 0.5\nroom{a="2"} 0.5\n'
    gate = await pages.gate(PrometheusQueryGate(query="room", fallback=FALLBACK))
    await unreadable(gate, "2 series")
