"""An `endpoint-scrape` gate over real metrics pages: what counts, and what happens without them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from async_processor.admission import build
from async_processor.admission.base import Continue, Gate, GateState
from async_processor.admission.build import GateContext, build_gate
from async_processor.admission.live_number import LiveNumber
from async_processor.admission.settings import EndpointScrapeGate
from async_processor.clock import SystemClock
from async_processor.testing.candidates import candidate
from async_processor.testing.eventually import eventually
from async_processor.testing.metrics_page import MetricsPage

WORKERS = 10


class Bench:
    """Pages, and gates that look at them ten times a second."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self.context = GateContext(prometheus=None, clock=SystemClock())
        stack.push_async_callback(self.context.sensors.stop)

    async def page(self, text: str = "") -> MetricsPage:
        return await self._stack.enter_async_context(MetricsPage(text))

    async def gate(self, *pages: MetricsPage, **parameters: Any) -> Gate:
        urls = [page.url for page in pages]
        settings = EndpointScrapeGate.model_validate({"urls": urls, **parameters})
        gate = build_gate(settings, self.context, workers=LiveNumber(WORKERS))
        await gate.start()
        return gate


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setattr(build, "SCRAPE_INTERVAL", 0.1)
    async with AsyncExitStack() as stack:
        yield Bench(stack)


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
    return await has(gate, lambda state: state.available and state.budget == pytest.approx(budget))


async def unreadable(gate: Gate, why: str) -> GateState:
    return await has(gate, lambda state: not state.available and why in state.reason)


async def permits(gate: Gate, wanted: int) -> bool:
    return gate.permits(WORKERS) == wanted


async def test_a_saturation_drives_the_gate_open_partly_closed_and_back(bench: Bench) -> None:
    page = await bench.page()
    gate = await bench.gate(page, metric="saturation", labels={"pool": "p"}, baseline=0.2)
    for saturation, budget in ((0.0, 0.8), (0.5, 0.3), (0.8, 0.0), (1.5, 0.0), (0.2, 0.6)):
        page.text = f'saturation{{pool="p"}} {saturation}\nsaturation{{pool="other"}} 0.99\n'
        state = await reads(gate, budget)
        assert state.threshold == 0.2
        assert gate.permits(WORKERS) == int(budget * WORKERS + 1e-9)


async def test_a_budget_is_taken_as_it_stands(bench: Bench) -> None:
    page = await bench.page("room 0.25\n")
    await reads(await bench.gate(page, metric="room", value_type="budget"), 0.25)


async def test_counts_are_a_share_of_what_the_pods_can_take(bench: Bench) -> None:
    one = await bench.page('waiting{engine="0"} 2\nwaiting{engine="1"} 1\n')
    other = await bench.page('waiting{engine="0"} 1\n')
    await reads(await bench.gate(one, other, metric="waiting", max_count_per_pod=5), 0.6)


async def test_the_number_of_pods_may_be_read_from_elsewhere(bench: Bench) -> None:
    page = await bench.page("running 30\n")
    router = await bench.page('ready{name="p"} 4\nready{name="q"} 9\n')
    gate = await bench.gate(
        page,
        metric="running",
        max_count_per_pod=10,
        pods_url=router.url,
        pods_metric="ready",
        pods_labels={"name": "p"},
    )
    await reads(gate, 0.25)
    router.text = 'ready{name="p"} 0\n'
    await unreadable(gate, "0 pods are ready")
    router.text = ""
    await unreadable(gate, 'has no series ready{name="p"}')


async def test_of_several_shares_the_fullest_of_a_page_and_the_mean_of_the_pages(
    bench: Bench,
) -> None:
    one = await bench.page('kv{engine="0"} 0.2\nkv{engine="1"} 0.6\n')
    other = await bench.page('kv{engine="0"} 0.2\n')
    await reads(await bench.gate(one, other, metric="kv"), 0.6)
    await reads(await bench.gate(one, other, metric="kv", value_type="budget"), 0.2)


async def test_a_missing_series_is_unreadable_unless_it_has_a_value(bench: Bench) -> None:
    page = await bench.page("# nothing queued\n")
    bare = await bench.gate(page, metric="queue_size", fallback=0.5)
    state = await unreadable(bare, "has no series queue_size")
    assert (state.budget, state.value) == (0.5, None)
    assert bare.permits(WORKERS) == 5
    counted_as_empty = await bench.gate(
        page, metric="queue_size", absent_value=0, max_count_per_pod=4
    )
    await reads(counted_as_empty, 1.0)


async def test_another_page_does_not_pass_for_one_without_the_series(bench: Bench) -> None:
    page = await bench.page("<html>sign in</html>")
    gate = await bench.gate(page, metric="queue_size", absent_value=0)
    await unreadable(gate, "no metrics page")


@pytest.mark.parametrize(
    ("text", "status", "why"),
    [("metric NaN\n", 200, "is nan"), ("", 404, "answered 404"), ("", 502, "answered 502")],
)
async def test_pages_without_a_number_are_unreadable(
    bench: Bench, text: str, status: int, why: str
) -> None:
    page = await bench.page(text)
    page.status = status
    await unreadable(await bench.gate(page, metric="metric"), why)


async def test_a_page_that_is_gone_counts_as_a_full_pod(bench: Bench) -> None:
    pages = [await bench.page("kv 0.5\n") for _ in range(4)]
    gate = await bench.gate(*pages, metric="kv")
    await reads(gate, 0.5)
    await pages[0].stop()
    state = await reads(gate, 0.375)
    assert state.reason.startswith(f"1 of 4 pages: {pages[0].url}: ")
    pages[1].delay = 60
    await reads(gate, 0.25)
    for page in pages:
        await page.stop()
    await unreadable(gate, pages[0].url)
    for page in pages:
        page.delay = 0
        await page.start()
    await reads(gate, 0.5)


async def test_counted_admission_gives_out_free_slots_once_per_reading(bench: Bench) -> None:
    page = await bench.page("queued 60\n")
    gate = await bench.gate(
        page, metric="queued", max_count_per_pod=64, value_type="saturation", admission="counted"
    )
    await reads(gate, 4 / 64)
    page.delay = 0.5  # no new reading meanwhile
    verdicts = [await gate.admit(candidate()) for _ in range(20)]
    assert sum(isinstance(verdict, Continue) for verdict in verdicts) == 4
    page.delay = 0
    await eventually(lambda: permits(gate, 4))


async def test_gates_that_read_the_same_share_their_sensor(bench: Bench) -> None:
    page = await bench.page("kv 0.5\n")
    page.delay = 0.4
    gates = [await bench.gate(page, metric="kv", fallback=n / 10) for n in range(10)]
    for gate in gates:
        await reads(gate, 0.5)
    assert page.asked <= 2


async def test_secrets_of_a_url_are_not_shown(bench: Bench) -> None:
    page = await bench.page()
    page.status = 401
    settings = EndpointScrapeGate(
        url=f"http://me:sesame@{page.target}/metrics?token=sesame", metric="kv"
    )
    gate = build_gate(settings, bench.context, workers=LiveNumber(1))
    await gate.start()
    state = await unreadable(gate, f"{page.url} answered 401")
    assert "sesame" not in repr(state)


async def test_a_page_that_moves_for_ever_is_not_followed_for_long(bench: Bench) -> None:
    page = await bench.page("kv 0.5\n")
    page.status, page.location = 307, "/metrics/"
    gate = await bench.gate(page, metric="kv")
    await unreadable(gate, "redirects")
    page.status = 200
    await reads(gate, 0.5)
