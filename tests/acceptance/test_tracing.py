"""The real command sends its traces to a real collector, by the standard variables alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from async_processor.producer import Producer, Submission
from async_processor.testing.daemons import DaemonProcess
from async_processor.testing.eventually import eventually
from async_processor.testing.gateway import Gateway
from async_processor.testing.otlp_collector import Collected, OtlpCollector

Fleet = Callable[..., DaemonProcess]

SPANS: Final = Counter(
    {"submit": 1, "process-request": 2, "http-request": 2, "re-enqueue": 1, "read": 1}
)
CONTEXT: Final = TraceContextTextMapPropagator()


def of_the_customer(collector: OtlpCollector) -> TracerProvider:
    """Tracing of the program that submits and reads."""
    provider = TracerProvider(
        resource=Resource({"service.name": "customer"}), shutdown_on_exit=False
    )
    exporter = OTLPSpanExporter(endpoint=collector.url)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


async def test_from_the_producer_to_the_gateway_and_back_through_a_retry_is_one_tree(
    fleet: Fleet, producer: Producer
) -> None:
    with OtlpCollector() as collector:
        customer = of_the_customer(collector)
        tracer = customer.get_tracer("customer")
        async with Gateway(failures=1) as gateway:
            daemon = fleet(gateway.url, queue={"model": {"small": "tiny"}})
            await daemon.start(
                environment={
                    "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
                    "OTEL_BSP_SCHEDULE_DELAY": "100",
                }
            )
            metadata: dict[str, str] = {}
            with tracer.start_as_current_span("submit"):
                CONTEXT.inject(metadata)
                handle = await producer.submit(
                    Submission(
                        payload={"model": "small", "prompt": "hi"},
                        deadline="10m",
                        metadata=metadata,
                    )
                )
            result = await producer.result(handle, timeout=60)
            with tracer.start_as_current_span("read", context=CONTEXT.extract(result.metadata)):
                pass

            async def all_there() -> bool:
                return len(collector.spans) >= SPANS.total()

            await eventually(all_there)
            await daemon.terminate()
        customer.shutdown()

    spans = {span.span_id: span for span in collector.spans}
    assert Counter(span.name for span in spans.values()) == SPANS
    (root,) = [span for span in spans.values() if not span.parent_id]
    assert root.name == "submit"
    assert {span.trace_id for span in spans.values()} == {root.trace_id}
    assert {span.parent_id for span in spans.values()} - {""} <= spans.keys()
    parents = Counter(
        (span.name, spans[span.parent_id].name) for span in spans.values() if span.parent_id
    )
    assert parents == {
        ("process-request", "submit"): 2,
        ("http-request", "process-request"): 2,
        ("re-enqueue", "process-request"): 1,
        ("read", "submit"): 1,
    }

    heard = [arrival.headers["traceparent"].split("-")[2] for arrival in gateway.arrivals]
    first, second = (spans[span_id] for span_id in heard)
    assert (first.name, second.name) == ("http-request", "http-request")
    assert (first.failed, second.failed) == (True, False)
    assert first.attributes["http.response.status_code"] == 503
    _check_attempts(spans[first.parent_id], spans[second.parent_id], handle.id)


def _check_attempts(refused: Collected, served: Collected, request_id: str) -> None:
    common = {
        "gen_ai.request.id": request_id,
        "request.id": request_id,
        "gen_ai.request.model": "tiny",
        "llm_d.async.queue.id": "request-sortedset",
        "queue.id": "request-sortedset",
        "llm_d.async.queue.name": "request-sortedset",
        "queue.name": "request-sortedset",
    }
    assert refused.attributes == {
        **common,
        "llm_d.async.retry_count": 0,
        "retry.count": 0,
        "llm_d.async.error.category": "SERVER_ERROR",
        "error.category": "SERVER_ERROR",
    }
    assert served.attributes == {**common, "llm_d.async.retry_count": 1, "retry.count": 1}
    assert (refused.failed, served.failed) == (True, False)
    assert refused.service == served.service == "llm-d-async"
