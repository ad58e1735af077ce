"""A `vllm-pool` gate over the pods' own pages: given one by one, or found behind a name."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from async_processor.admission import build
from async_processor.admission.base import Gate, GateState
from async_processor.admission.build import GateContext, build_gate
from async_processor.admission.live_number import LiveNumber
from async_processor.admission.settings import VllmPoolGate
from async_processor.clock import SystemClock
from async_processor.testing.eventually import until
from async_processor.testing.metrics_page import MetricsPage

FALLBACK = 0.125


def page_text(*, kv: float = 0.0, waiting: int = 0, running: int = 0) -> str:
    return (
        f"vllm:kv_cache_usage_perc {kv}\n"
        f"vllm:num_requests_waiting {waiting}\n"
        f"vllm:num_requests_running {running}\n"
    )


class Bench:
    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._context = GateContext(prometheus=None, clock=SystemClock())
        stack.push_async_callback(self._context.sensors.stop)

    async def pod(self, **load: Any) -> MetricsPage:
        return await self._stack.enter_async_context(MetricsPage(page_text(**load)))

    async def gate(self, **settings: Any) -> Gate:
        configured = VllmPoolGate.model_validate({"fallback": FALLBACK, **settings})
        gate = build_gate(configured, self._context, workers=LiveNumber(8))
        await gate.start()
        return gate


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setattr(build, "SCRAPE_INTERVAL", 0.1)
    async with AsyncExitStack() as stack:
        yield Bench(stack)


async def has(gate: Gate, wanted: Callable[[GateState], bool]) -> GateState:
    try:
        await until(lambda: wanted(gate.state()))
    except TimeoutError:
        pytest.fail(f"the gate stays at {gate.state()}")
    return gate.state()


async def reads(gate: Gate, budget: float) -> GateState:
    return await has(gate, lambda s: s.available and s.budget == pytest.approx(budget))


async def test_open_partly_closed_and_back(bench: Bench) -> None:
    pod = await bench.pod()
    gate = await bench.gate(urls=[f"http://{pod.target}"], max_kv_cache=0.8)
    for load, budget in (
        ({}, 1.0),
        ({"kv": 0.6}, 0.25),
        ({"kv": 0.8}, 0.0),
        ({"kv": 0.1, "waiting": 1}, 0.0),
        ({"running": 300}, 1.0),
    ):
        pod.text = page_text(**load)
        await reads(gate, budget)


async def test_a_closed_gate_names_what_fills_the_pods(bench: Bench) -> None:
    pods = [await bench.pod(kv=0.91, running=7), await bench.pod(waiting=3)]
    gate = await bench.gate(urls=[f"http://{pod.target}" for pod in pods])
    state = await reads(gate, 0.0)
    assert state.reason == (
        "room 0 is not above 0 (in a pod at most: KV cache 91%, 3 waiting, 7 running)"
    )


async def test_a_pod_without_an_answer_is_full_and_without_any_the_fallback_holds(
    bench: Bench,
) -> None:
    pods = [await bench.pod() for _ in range(4)]
    gate = await bench.gate(urls=[f"http://{pod.target}" for pod in pods])
    await reads(gate, 1.0)
    await pods[0].stop()
    state = await reads(gate, 0.75)
    assert state.reason.startswith("1 of 4 pods: ")
    pods[1].status = 503
    await reads(gate, 0.5)
    pods[2].text = "<html>sign in</html>"
    await reads(gate, 0.25)
    pods[3].delay = 60
    state = await has(gate, lambda state: not state.available)
    assert (state.budget, state.value) == (FALLBACK, 0.25)
    pods[3].delay = 0
    await reads(gate, 0.25)


async def test_every_address_of_a_name_is_a_pod_and_the_name_is_looked_up_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = await bench.pod(kv=0.425)
    port = int(pod.target.rpartition(":")[2])
    addresses = ["127.0.0.1"]
    resolve = socket.getaddrinfo

    def looked_up(host: Any, *args: Any, **options: Any) -> Any:
        if host != "pods.test":
            return resolve(host, *args, **options)
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (a, port)) for a in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    gate = await bench.gate(dns=f"pods.test:{port}")
    await reads(gate, 0.5)
    addresses.append("127.0.0.9")  # nobody listens there
    await reads(gate, 0.25)
    addresses.remove("127.0.0.9")
    await reads(gate, 0.5)
    addresses.clear()
    state = await has(gate, lambda state: not state.available)
    assert "the name pods.test cannot be resolved" in state.reason
    assert state.budget == FALLBACK


async def test_gates_over_the_same_pods_share_their_readings(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "SCRAPE_INTERVAL", 300)
    pod = await bench.pod()
    gates = [await bench.gate(urls=[f"http://{pod.target}"], fallback=n / 10) for n in range(10)]
    for gate in gates:
        await reads(gate, 1.0)
    assert pod.asked == 1
