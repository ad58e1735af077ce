"""Which spans a request leaves behind, for each way in which its stay can end."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import format_trace_id
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from async_processor.dispatch.traced import TracedWorker
from async_processor.settlement.decision import Ending
from async_processor.telemetry.tracing import Tracing
from async_processor.testing.eventually import eventually
from async_processor.testing.gateway import Gateway
from async_processor.testing.in_memory import QUEUE, InMemory, in_memory
from async_processor.testing.messages import message
from async_processor.transport.base import Delivery
from async_processor.wire.envelope import examine

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE, CALLER = PARENT.split("-")[1:3]
UNSAMPLED = PARENT[:-1] + "0"
CATEGORY = "llm_d.async.error.category"


class Traces:
    """The spans that a daemon has sent; all of them once it has stopped."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.tracing = Tracing(self._exporter)

    def named(self, name: str) -> Sequence[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def of(self, request_id: str) -> ReadableSpan:
        """The one span of a request's stay."""
        (span,) = [
            span
            for span in self.named("process-request")
            if dict(span.attributes or {})["request.id"] == request_id
        ]
        return span


@pytest.fixture
def traces() -> Traces:
    return Traces()


def attribute(span: ReadableSpan, name: str) -> object:
    return dict(span.attributes or {}).get(name)


async def test_endings_without_a_call(traces: Traces) -> None:
    async with (
        Gateway() as gateway,
        in_memory(gateway.url, tracing=traces.tracing) as daemon,
    ):
        await daemon.submit("invalid", endpoint="//else", metadata={"traceparent": PARENT})
        await daemon.submit("unsampled", metadata={"traceparent": UNSAMPLED})
        await daemon.submit("plain", model="m-of-the-message", headers={"TraceParent": PARENT})
        await daemon.results(3)

    invalid, plain = traces.of("invalid"), traces.of("plain")
    assert attribute(invalid, CATEGORY) == attribute(invalid, "error.category") == "INVALID_REQUEST"
    assert not invalid.status.is_ok
    assert plain.status.is_ok
    assert attribute(plain, CATEGORY) is None
    assert attribute(plain, "gen_ai.request.model") == "m-of-the-message"
    for span in (invalid, plain):
        assert span.parent is not None
        assert f"{span.parent.trace_id:032x}-{span.parent.span_id:016x}" == f"{TRACE}-{CALLER}"
    assert len(traces.named("http-request")) == 1
    heard = [arrival.headers["traceparent"] for arrival in gateway.arrivals]
    assert {each.split("-")[1] for each in heard} == {TRACE}
    assert {each.split("-")[3] for each in heard} == {"00", "01"}
    assert all(CALLER not in each for each in heard)
    assert all(
        [name.lower() for name in arrival.headers].count("traceparent") == 1
        for arrival in gateway.arrivals
    )


async def test_a_call_that_a_drain_cuts_off_is_stored_again(traces: Traces) -> None:
    async with (
        Gateway(hold=True) as gateway,
        in_memory(gateway.url, tracing=traces.tracing) as daemon,
    ):
        await daemon.submit("cut")

        async def running() -> bool:
            return bool(gateway.open)

        await eventually(running)

    (again,) = traces.named("re-enqueue")
    stay = traces.of("cut")
    assert again.parent is not None
    assert stay.context is not None
    assert again.parent.span_id == stay.context.span_id
    assert attribute(again, "gen_ai.request.id") == "cut"
    assert len(traces.named("http-request")) == 1


class Worked:
    """A worker that brings stays to a given end."""

    def __init__(self, ending: Ending | None) -> None:
        self._ending = ending

    async def process(self, stay: object) -> Ending | None:
        return self._ending


@pytest.mark.parametrize(
    ("ending", "started_at", "spans"),
    [
        (Ending.REFUSED, None, 0),
        (Ending.PARKED, None, 0),
        (Ending.RELEASED, None, 0),
        (None, None, 0),
        (None, 1.0, 1),
        (Ending.RELEASED, 1.0, 1),
        (Ending.EXPIRED, None, 1),
    ],
)
async def test_what_waited_in_vain_leaves_no_span(
    traces: Traces, ending: Ending | None, started_at: float | None, spans: int
) -> None:
    body = message("r")
    delivery = Delivery(
        queue_name=QUEUE,
        token="t",
        body=body,
        score=1.0,
        deliveries=0,
        claimed_at=0.0,
        message=examine(body),
    )
    stay: Any = SimpleNamespace(
        held=SimpleNamespace(delivery=delivery, started_at=started_at),
        route=SimpleNamespace(queue=SimpleNamespace(id="q", queue_name=QUEUE)),
    )
    worker: Any = Worked(ending)
    assert await TracedWorker(worker, traces.tracing).process(stay) is ending
    await traces.tracing.stop()
    assert len(traces.named("process-request")) == spans


async def page(daemon: InMemory, accept: str) -> httpx.Response:
    async with httpx.AsyncClient(timeout=60) as client:
        url = f"http://127.0.0.1:{daemon.parts.exposition.port}/metrics"
        return await client.get(url, headers={"Accept": accept})


async def test_latencies_name_a_trace_to_whoever_reads_openmetrics(traces: Traces) -> None:
    async with (
        Gateway() as gateway,
        in_memory(gateway.url, tracing=traces.tracing) as daemon,
    ):
        await daemon.submit("one", metadata={"traceparent": PARENT})
        await daemon.submit("two", metadata={"traceparent": UNSAMPLED})
        await daemon.results(2)
        found = await page(daemon, "application/openmetrics-text;version=1.0.0,*/*;q=0.1")
        classic = await page(daemon, "text/plain")

    assert found.headers["Content-Type"].startswith("application/openmetrics-text")
    samples = [
        sample
        for family in text_string_to_metric_families(found.text)  # type: ignore[no-untyped-call]
        for sample in family.samples
        if sample.exemplar is not None
    ]
    assert {sample.name.removeprefix("llm_d_async_async_") for sample in samples} == {
        "inference_latency_time_millis_bucket",
        "queue_residence_time_millis_bucket",
    }
    assert {sample.exemplar.labels["trace_id"] for sample in samples} == {TRACE}
    assert {sample.labels["queue_name"] for sample in samples} == {QUEUE}
    assert classic.headers["Content-Type"].startswith("text/plain")
    assert TRACE not in classic.text
    assert {
        format_trace_id(span.context.trace_id)
        for span in traces.named("http-request")
        if span.context
    } == {TRACE}
