"""Turns tracing on where the OTEL_* variables ask for it; without them nothing is imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from async_processor.errors import ConfigurationError, Problem
from async_processor.telemetry.logs import get_logger

if TYPE_CHECKING:
    from async_processor.telemetry.tracing import Tracing

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")

_log = get_logger(__name__)


def build_tracing(environ: Mapping[str, str]) -> Tracing | None:
    """None where nobody asks for traces, or they cannot be made, which the log then says.

    Raises ConfigurationError for variables that make no sense.
    """
    if not _wanted(environ):
        return None
    protocol = next(filter(None, map(environ.get, _PROTOCOLS)), "grpc")
    if protocol != "grpc":
        _log.warning("not_traced", why=f"OTLP by {protocol} is not spoken here: set it to grpc")
        return None
    try:
        from async_processor.telemetry.tracing import Tracing
    except ImportError:
        _log.warning("not_traced", why="needs pip install 'async-processor[otel]'")
        return None
    try:
        return Tracing.by_environment()
    except Exception as error:
        problem = Problem(path="OTEL_*", message=f"traces cannot be sent by these: {error}")
        raise ConfigurationError([problem]) from error


def _wanted(environ: Mapping[str, str]) -> bool:
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    if environ.get("OTEL_TRACES_EXPORTER", "otlp") != "otlp":
        return False
    return any(map(environ.get, _ENDPOINTS))
