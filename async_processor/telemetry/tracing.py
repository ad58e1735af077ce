"""Traces, by OpenTelemetry (the extra `otel`); the one door to its libraries.

A request's spans hang under the producer's, which its metadata name: `process-request` for each
stay here that came to something, in it `http-request` for the call, whose context goes on to the
gateway, and `re-enqueue` where the request is stored again.

Names of spans and attributes are llm-d-async's, with its older names beside them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import msgspec
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from async_processor.telemetry.masking import mask_url, one_line

DEFAULT_SERVICE: Final = "llm-d-async"
"""What traces call this service unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES do."""

LAST_EXPORT: Final = 5.0
"""Seconds at the end for the spans that have not been sent yet."""

MODEL: Final = "gen_ai.request.model"
CATEGORY: Final = ("llm_d.async.error.category", "error.category")

_CONTEXT: Final = TraceContextTextMapPropagator()


class RequestIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Which request a span is of, and from where."""

    request_id: str
    queue_id: str
    queue_name: str
    retry_count: int

    def attributes(self) -> dict[str, str | int]:
        """As spans have them, under both names."""
        named: dict[str, str | int] = {}
        for name, value in (("id", self.queue_id), ("name", self.queue_name)):
            named |= dict.fromkeys((f"llm_d.async.queue.{name}", f"queue.{name}"), value)
        named |= dict.fromkeys(("gen_ai.request.id", "request.id"), self.request_id)
        return named | dict.fromkeys(("llm_d.async.retry_count", "retry.count"), self.retry_count)


class CallSpan:
    """The span of a call; `context` are the headers that tell the gateway of it."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self.context: dict[str, str] = {}
        _CONTEXT.inject(self.context, trace.set_span_in_context(span))

    def answered(self, status: int) -> None:
        """An HTTP answer came."""
        self._span.set_attribute("http.response.status_code", status)
        if status >= 400:
            self.failed(str(status))

    def failed(self, kind: str, message: str = "") -> None:
        """No answer came, or a bad one."""
        self._span.set_attribute("error.type", kind)
        self._span.set_status(Status(StatusCode.ERROR, message or None))


class Tracing:
    """Makes spans. They are made in the task that works on their request, the current one."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("async_processor")
        self._stopped = False

    @classmethod
    def by_environment(cls) -> Tracing:
        """Sends spans where the OTEL_* variables say."""
        return cls(OTLPSpanExporter())

    async def start(self) -> None:
        """Nothing is connected before there is a span."""

    async def stop(self) -> None:
        """Send what is left, if it can be sent within `LAST_EXPORT`."""
        if self._stopped:
            return
        self._stopped = True
        ending = asyncio.ensure_future(asyncio.to_thread(self._provider.shutdown))
        await asyncio.wait({ending}, timeout=LAST_EXPORT)
        if not ending.done():
            self._exporter.shutdown()
        await ending

    @contextmanager
    def request(self, identity: RequestIdentity, carrier: Mapping[str, str]) -> Iterator[Span]:
        """`process-request`, under the context that `carrier` holds (`traceparent`).

        It is sent only if the caller ends it.
        """
        span = self._tracer.start_span(
            "process-request",
            context=_CONTEXT.extract(carrier),
            kind=SpanKind.CONSUMER,
            attributes=identity.attributes(),
        )
        with trace.use_span(span, record_exception=False, set_status_on_exception=False):
            yield span

    @contextmanager
    def call(self, url: str) -> Iterator[CallSpan]:
        """`http-request`, under the current span."""
        attributes = {"http.request.method": "POST", "url.full": one_line(mask_url(url))}
        with self._tracer.start_as_current_span(
            "http-request", kind=SpanKind.CLIENT, attributes=attributes
        ) as span:
            yield CallSpan(span)

    @contextmanager
    def stored_again(self, identity: RequestIdentity) -> Iterator[None]:
        """`re-enqueue`, under the current span."""
        with self._tracer.start_as_current_span("re-enqueue", attributes=identity.attributes()):
            yield


def _resource() -> Resource:
    found = Resource.create()
    if str(found.attributes[SERVICE_NAME]).startswith("unknown_service"):
        return found.merge(Resource({SERVICE_NAME: DEFAULT_SERVICE}))
    return found


def model(name: str) -> None:
    """The current request asks for this model."""
    trace.get_current_span().set_attribute(MODEL, name)


def failed(category: str) -> None:
    """The current request, or this attempt, came to a bad end of this kind."""
    span = trace.get_current_span()
    span.set_attributes(dict.fromkeys(CATEGORY, category))
    span.set_status(Status(StatusCode.ERROR, category))


def trace_id() -> str:
    """The current trace, if it is one that is kept; else empty."""
    context = trace.get_current_span().get_span_context()
    return trace.format_trace_id(context.trace_id) if context.trace_flags.sampled else ""
