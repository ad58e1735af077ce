"""An engine whose calls are traced, and whose server hears of the trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import structs

from async_processor.inference.base import Answer, Call, Engine, Reply
from async_processor.telemetry import tracing
from async_processor.telemetry.tracing import CallSpan, Tracing

_CONTEXT: Final = frozenset({"traceparent", "tracestate"})


class _Payload(msgspec.Struct, frozen=True):
    model: Any = None


_decoder = msgspec.json.Decoder(_Payload)


class TracedEngine:
    """Around another engine."""

    def __init__(self, engine: Engine, spans: Tracing) -> None:
        self._engine = engine
        self._spans = spans

    async def start(self) -> None:
        await self._engine.start()

    async def stop(self) -> None:
        await self._engine.stop()

    async def send(self, call: Call) -> Reply:
        """Like the engine's, in a span."""
        model = _model(call.payload)
        if model:
            tracing.model(model)
        with self._spans.call(call.url) as span:
            headers = _with_context(call.headers, span.context)
            reply = await self._engine.send(structs.replace(call, headers=headers))
            _tell(span, reply)
        return reply


def _model(payload: bytes) -> str:
    """The model that is asked for; empty when the payload names none."""
    try:
        model = _decoder.decode(payload).model
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    return model if isinstance(model, str) else ""


def _with_context(headers: Mapping[str, str], context: Mapping[str, str]) -> Mapping[str, str]:
    """The call's own span replaces the context that came with the message."""
    others = {name: value for name, value in headers.items() if name.lower() not in _CONTEXT}
    return {**others, **context}


def _tell(span: CallSpan, reply: Reply) -> None:
    if isinstance(reply, Answer):
        span.answered(reply.status)
    else:
        span.failed(reply.failure.name.lower(), reply.message)
