"""A collector of traces that a test looks into: a real OTLP endpoint over gRPC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import grpc
import msgspec
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """A span as it came; ids in hexadecimal digits, `parent_id` empty at the root."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    failed: bool
    attributes: Mapping[str, Any]


class OtlpCollector(trace_service_pb2_grpc.TraceServiceServicer):
    """Listens while it is entered; `spans` are those that came so far."""

    def __init__(self) -> None:
        self.spans: list[Collected] = []
        self._server = grpc.server(ThreadPoolExecutor(max_workers=1))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(  # type: ignore[no-untyped-call]
            self, self._server
        )
        self._port = self._server.add_insecure_port("127.0.0.1:0")

    @property
    def url(self) -> str:
        """For OTEL_EXPORTER_OTLP_ENDPOINT."""
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.stop(grace=0).wait()

    def Export(self, request: Any, context: object) -> Any:  # noqa: N802 - the protocol's name
        """Take spans; called by gRPC in a thread of its own."""
        del context
        for batch in request.resource_spans:
            service = _values(batch.resource.attributes).get("service.name", "")
            for scope in batch.scope_spans:
                self.spans += [_collected(service, span) for span in scope.spans]
        return trace_service_pb2.ExportTraceServiceResponse()


def _collected(service: str, span: Any) -> Collected:
    return Collected(
        service=service,
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        failed=span.status.code == span.status.STATUS_CODE_ERROR,
        attributes=_values(span.attributes),
    )


def _values(attributes: Sequence[Any]) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
