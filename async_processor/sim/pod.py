"""One simulated vLLM server: the OpenAI API over a backend, with faults and a ledger."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec
from aiohttp import web

from async_processor.clock import Clock
from async_processor.sim import answers, faulty_answer
from async_processor.sim.backend import Backend
from async_processor.sim.calls import Api, BadCall, Call, Defaults, read_call
from async_processor.sim.engine import QueueFull, TooLong
from async_processor.sim.faults import Fault, FaultSwitch
from async_processor.sim.http_server import Routes, json_response
from async_processor.sim.ledger import Ledger
from async_processor.sim.pod_metrics import Load, PodMetrics

_JSON = "application/json"
_EVENTS = "text/event-stream"


class PodSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod serves; with `strict_model`, another model's name gets a 404, as at vLLM."""

    model_name: str = "sim"
    strict_model: bool = False
    max_model_len: int = 2048


class Pod:
    """Answers calls. The router calls `complete` in process; the pod's own port does so too."""

    def __init__(
        self,
        name: str,
        settings: PodSettings,
        *,
        backend: Backend,
        metrics: PodMetrics,
        faults: FaultSwitch,
        ledger: Ledger,
        clock: Clock,
    ) -> None:
        self.name = name
        self.backend = backend
        self.faults = faults
        self.ledger = ledger
        self._settings = settings
        self._defaults = Defaults(model=settings.model_name)
        self._metrics = metrics
        self._clock = clock

    @property
    def load(self) -> Load:
        return self.backend.load()

    @property
    def in_flight(self) -> int:
        return self.backend.in_flight

    @property
    def ready(self) -> bool:
        return not self.faults.now.not_ready

    def routes(self) -> Routes:
        return {
            ("POST", Api.COMPLETIONS.value): self.complete,
            ("POST", Api.CHAT.value): self.complete,
            ("GET", "/v1/models"): self.models,
            ("GET", "/health"): self._health,
            ("GET", "/metrics"): self._show_metrics,
        }

    async def complete(self, request: web.BaseRequest) -> web.StreamResponse:
        """Serve one call of either API."""
        body = await request.read()
        try:
            call = self._read(request, body)
        except BadCall as error:
            return _refusal(str(error), "BadRequestError", error.status)
        self.ledger.called(call.request_id)
        return await self._serve(request, call)

    async def models(self, _: web.BaseRequest) -> web.StreamResponse:
        """`/v1/models`."""
        settings = self._settings
        return json_response(
            answers.models(
                settings.model_name, max_model_len=settings.max_model_len, now=self._clock.now()
            )
        )

    async def _health(self, _: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=200 if self.ready else 503)

    async def _show_metrics(self, _: web.BaseRequest) -> web.StreamResponse:
        page = self._metrics.render(self.load)
        return web.Response(body=page, headers={"Content-Type": "text/plain; version=0.0.4"})

    def _read(self, request: web.BaseRequest, body: bytes) -> Call:
        call = read_call(
            Api(request.path),
            body,
            header_id=request.headers.get("x-request-id", ""),
            defaults=self._defaults,
            now=self._clock.now(),
        )
        if self._settings.strict_model and call.model != self._settings.model_name:
            raise BadCall(f"The model `{call.model}` does not exist.", status=404)
        return call

    async def _serve(self, request: web.BaseRequest, call: Call) -> web.StreamResponse:
        faults, fault = self.faults.now, self.faults.draw()
        if faults.added_latency:
            await self._clock.sleep(faults.added_latency)
        early = await faulty_answer.instead(request, fault, faults)
        if early is not None:
            return early
        try:
            return await self._generate(request, call, fault)
        except QueueFull as error:
            self._metrics.rejected()
            return _refusal(str(error), "ServiceUnavailableError", 503)
        except TooLong as error:
            return _refusal(str(error), "BadRequestError", 400)

    async def _generate(
        self, request: web.BaseRequest, call: Call, fault: Fault | None
    ) -> web.StreamResponse:
        if call.stream and fault is None:
            return await self._stream(request, call)
        async with aclosing(self._tokens(call)) as tokens:
            async for _ in tokens:
                pass
        body, content_type = self._body(call)
        if fault is None:
            self.ledger.answered(call.request_id)
            return web.Response(body=body, content_type=content_type)
        return await faulty_answer.spoiled(
            request,
            body,
            content_type,
            fault,
            trickle_seconds=self.faults.now.trickle_seconds,
            clock=self._clock,
        )

    def _tokens(self, call: Call) -> AsyncGenerator[int, None]:
        return self.backend.tokens(
            prompt_tokens=call.prompt_tokens, output_tokens=call.output_tokens
        )

    def _body(self, call: Call) -> tuple[bytes, str]:
        if not call.stream:
            return answers.answer(call, least_bytes=self.faults.now.answer_bytes), _JSON
        chunks = answers.chunk(call, 0, call.output_tokens)
        return chunks + answers.closing(call), _EVENTS

    async def _stream(self, request: web.BaseRequest, call: Call) -> web.StreamResponse:
        """Server-sent events as the tokens come; the headers wait for the first."""
        response = web.StreamResponse(headers={"Content-Type": _EVENTS})
        sent = 0
        async with aclosing(self._tokens(call)) as tokens:
            async for made in tokens:
                if not response.prepared:
                    await response.prepare(request)
                await response.write(answers.chunk(call, sent, made))
                sent = made
        await response.write(answers.closing(call))
        self.ledger.answered(call.request_id)
        return response


def _refusal(message: str, kind: str, status: int) -> web.Response:
    return json_response(answers.error(message, kind, status), status)
