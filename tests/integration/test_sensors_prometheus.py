"""A `prometheus-query` gate over a real Prometheus: driven open, partly, closed and back, and
through every way in which Prometheus can have nothing to say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from async_processor.admission import saturation
from async_processor.admission.base import Gate, GateState
from async_processor.admission.build import GateContext, build_gate
from async_processor.admission.live_number import LiveNumber
from async_processor.admission.settings import PrometheusQueryGate, PrometheusSaturationGate
from async_processor.clock import SystemClock
from async_processor.sensors.settings import PrometheusSettings
from async_processor.testing.eventually import eventually
from async_processor.testing.metrics_page import MetricsPage
from async_processor.testing.prometheus import PrometheusServer

FALLBACK = 0.125
WORKERS = 8


class Bench:
    """Gates over one Prometheus that is asked ten times a second."""

    def __init__(self) -> None:
        self._contexts: list[GateContext] = []

    async def gate(self, url: str, query: str, *, like: Gate | None = None) -> Gate:
        if like is None:
            prometheus = PrometheusSettings(url=url, cache_ttl=0.1)
            self._contexts.append(GateContext(prometheus=prometheus, clock=SystemClock()))
        settings = PrometheusQueryGate(query=query, fallback=FALLBACK, pool="p")
        gate = build_gate(settings, self._contexts[-1], workers=LiveNumber(WORKERS))
        await gate.start()
        return gate

    async def stop(self) -> None:
        for context in self._contexts:
            await context.sensors.stop()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    yield bench
    await bench.stop()


@pytest.fixture
async def page() -> AsyncIterator[MetricsPage]:
    async with MetricsPage() as page:
        yield page


async def has(gate: Gate, wanted: Callable[[GateState], bool]) -> GateState:
    async def state() -> GateState | None:
        state = gate.state()
        return state if wanted(state) else None

    try:
        found = await eventually(state)
    except TimeoutError:
        pytest.fail(f"the gate stays at {gate.state()}")
    assert found is not None
    return found


async def reads(gate: Gate, budget: float) -> GateState:
    return await has(gate, lambda state: state.available and state.budget == budget)


async def unreadable(gate: Gate, why: str) -> GateState:
    state = await has(gate, lambda state: not state.available and why in state.reason)
    assert state.budget == FALLBACK
    assert gate.permits(WORKERS) == FALLBACK * WORKERS
    return state


async def test_open_partly_closed_and_back(
    bench: Bench, page: MetricsPage, prometheus_for: Callable[..., PrometheusServer]
) -> None:
    page.set("room", 1.0)
    gate = await bench.gate(prometheus_for(page.target).url, "room")
    state = await reads(gate, 1.0)
    assert (state.type, state.pool, state.threshold) == ("prometheus-query", "p", 0.0)
    assert gate.permits(WORKERS) == WORKERS
    for value, budget, permits in ((0.25, 0.25, 2), (0.0, 0.0, 0), (-1, 0.0, 0), (7, 1.0, 8)):
        page.set("room", value)
        await reads(gate, budget)
        assert gate.permits(WORKERS) == permits


async def test_a_target_that_vanishes_leaves_no_stale_value_behind(
    bench: Bench, page: MetricsPage, prometheus_for: Callable[..., PrometheusServer]
) -> None:
    page.set("room", 0.5)
    gate = await bench.gate(prometheus_for(page.target).url, "room")
    await reads(gate, 0.5)
    await page.stop()
    state = await unreadable(gate, "the query gives no sample")
    assert state.value == 0.5  # the last value stands
    await page.start()
    await reads(gate, 0.5)


async def test_what_is_no_single_finite_number_is_unreadable(
    bench: Bench, page: MetricsPage, prometheus_for: Callable[..., PrometheusServer]
) -> None:
    page.text = 'room{pod="a"} 0.5\nroom{pod="b"} 0.75\nnothing NaN\nendless +Inf\n'
    url = prometheus_for(page.target).url
    first = await bench.gate(url, 'room{pod="a"}')
    await reads(first, 0.5)
    for query, why in {
        "room": "2 series",
        "no_such_metric": "no sample",
        "nothing": "NaN",
        "endless": "Inf",
        "scalar(no_such_metric)": "NaN",
        "room[1m]": "matrix",
        "'text'": "string",
        "room{": "parse error",
    }.items():
        await unreadable(await bench.gate(url, query, like=first), why)
    await reads(await bench.gate(url, "max(room)", like=first), 0.75)
    await reads(await bench.gate(url, "scalar(min(room))", like=first), 0.5)


async def test_prometheus_down_and_back(
    bench: Bench, page: MetricsPage, prometheus_for: Callable[..., PrometheusServer]
) -> None:
    page.set("room", 0.5)
    prometheus = prometheus_for(page.target)
    gate = await bench.gate(prometheus.url, "room")
    await reads(gate, 0.5)
    prometheus.kill()
    await unreadable(gate, prometheus.url)
    await asyncio.to_thread(prometheus.start)
    await reads(gate, 0.5)


async def test_prometheus_slow_and_back(
    bench: Bench, page: MetricsPage, prometheus_for: Callable[..., PrometheusServer]
) -> None:
    page.set("room", 0.5)
    prometheus = prometheus_for(page.target)
    gate = await bench.gate(prometheus.url, "room")
    await reads(gate, 0.5)
    prometheus.pause()
    await unreadable(gate, "no answer within 1 s")
    prometheus.resume()
    await reads(gate, 0.5)


async def test_saturation_of_a_pool_whatever_the_router_calls_it(
    bench: Bench, page: MetricsPage, prometheus_for: Callable[..., PrometheusServer]
) -> None:
    old, new = "inference_extension_flow_control_pool_saturation", saturation.METRICS[0]
    pool = 'inference_pool="p"'
    page.text = f'{old}{{{pool}}} 0.5\n{old}{{inference_pool="other"}} 0.1\n'
    query = saturation.query(PrometheusSaturationGate(pool="p"))
    gate = await bench.gate(prometheus_for(page.target).url, query)
    await reads(gate, 0.5)
    page.text += f'{new}{{{pool},replica="a"}} 0.625\n{new}{{{pool},replica="b"}} 0.75\n'
    await reads(gate, 0.75)
    page.text += f'{new}{{{pool},stage="prefill"}} 0.875\n{new}{{{pool},stage="effective"}} 0.25\n'
    await reads(gate, 0.25)
    page.text = f'{new}{{inference_pool="other"}} 0.1\n'
    await unreadable(gate, "the query gives no sample")


ANSWER = '{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[%s]}]}}'


async def test_a_proxy_in_the_place_of_prometheus(bench: Bench, page: MetricsPage) -> None:
    page.content_type = "application/json"
    page.text = ANSWER % '1764000000.5,"0.5"'
    gate = await bench.gate(f"http://{page.target}/prefix", "room")
    await reads(gate, 0.5)
    # The same evaluation again and again comes out of a cache, and grows too old.
    await unreadable(gate, "the same answer came again")
    page.text = ANSWER % '1764000001.5,"0.25"'
    await reads(gate, 0.25)
    page.text, page.content_type = "<html>sign in</html>", "text/html"
    await unreadable(gate, "Prometheus answered 200 with text/html, not with JSON")
    page.text, page.content_type = '{"status": "success"', "application/json"
    await unreadable(gate, "cannot be read")
    page.text = '{"status":"success","data":{"resultType":"vector","result":7}}'
    await unreadable(gate, "cannot be read")
    page.text = '{"status":"error","errorType":"timeout","error":"query timed out"}'
    page.status = 503
    await unreadable(gate, "Prometheus answered timeout: query timed out")


async def test_one_query_per_interval_whatever_the_number_of_gates(
    bench: Bench, page: MetricsPage
) -> None:
    page.content_type = "application/json"
    page.delay = 0.4
    page.text = ANSWER % '1764000000.5,"0.5"'
    url = f"http://{page.target}"
    first = await bench.gate(url, "room")
    gates = [first, *[await bench.gate(url, "room", like=first) for _ in range(20)]]
    for gate in gates:
        await reads(gate, 0.5)
    assert page.asked <= 2


async def test_a_password_is_used_and_never_shown(bench: Bench, page: MetricsPage) -> None:
    page.status = 500
    gate = await bench.gate(f"http://me:sesame@{page.target}", "room")
    state = await unreadable(gate, "answered 500")
    assert "sesame" not in repr(state)
    assert page.authorization == "Basic bWU6c2VzYW1l"


async def test_a_redirect_is_not_followed(bench: Bench, page: MetricsPage) -> None:
    """A loop of them would be asked again and again."""
    page.status, page.location = 302, "/elsewhere"
    gate = await bench.gate(f"http://{page.target}", "room")
    await unreadable(gate, "answered 302, a redirect that is not followed")
    assert set(page.paths) == {"/api/v1/query"}


@pytest.mark.parametrize("figure", ["1_0", " 1", "0x1"])
async def test_a_figure_that_prometheus_never_writes_is_none(
    bench: Bench, page: MetricsPage, figure: str
) -> None:
    page.content_type = "application/json"
    page.text = ANSWER % f'1764000000.5,"{figure}"'
    await unreadable(await bench.gate(f"http://{page.target}", "room"), f"the value is {figure}")
