"""The pool's front door: picks the least loaded pod, and says how saturated the pool is."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from aiohttp import web

from async_processor.sim import answers
from async_processor.sim.calls import Api
from async_processor.sim.faulty_answer import too_many_requests
from async_processor.sim.flow_control import DroppedReason, FlowControl
from async_processor.sim.http_server import Routes, json_response
from async_processor.sim.pod import Pod
from async_processor.sim.router_metrics import PoolState, RouterMetrics
from async_processor.sim.saturation import pool_saturation


class Router:
    """Calls pods in process: there is no second connection, so a fault reaches the client as is."""

    def __init__(
        self,
        pods: Sequence[Pod],
        *,
        flow_control: FlowControl,
        metrics: RouterMetrics,
        retry_after: float | None,
    ) -> None:
        self._pods = deque(pods)
        self._flow_control = flow_control
        self._metrics = metrics
        self._retry_after = retry_after

    def routes(self) -> Routes:
        return {
            ("POST", Api.COMPLETIONS.value): self._complete,
            ("POST", Api.CHAT.value): self._complete,
            ("GET", "/v1/models"): self._models,
            ("GET", "/health"): self._health,
            ("GET", "/metrics"): self._show_metrics,
        }

    async def _complete(self, request: web.BaseRequest) -> web.StreamResponse:
        dropped = await self._flow_control.admit()
        if dropped is not None:
            return too_many_requests(self._retry_after, reason=dropped)
        pod = self._least_loaded()
        return _no_endpoints() if pod is None else await pod.complete(request)

    async def _models(self, request: web.BaseRequest) -> web.StreamResponse:
        pod = self._least_loaded()
        return _no_endpoints() if pod is None else await pod.models(request)

    async def _health(self, _: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=200 if self._least_loaded() else 503)

    async def _show_metrics(self, _: web.BaseRequest) -> web.StreamResponse:
        ready = [pod for pod in self._pods if pod.ready]
        state = PoolState(
            saturation=pool_saturation([pod.load for pod in ready]),
            queue_size=self._flow_control.queue_size,
            waiting={pod.name: pod.load.waiting for pod in ready},
        )
        page = self._metrics.render(state)
        return web.Response(body=page, headers={"Content-Type": "text/plain; version=0.0.4"})

    def _least_loaded(self) -> Pod | None:
        """The ready pod with the fewest requests; equals take turns."""
        self._pods.rotate(-1)
        ready = (pod for pod in self._pods if pod.ready)
        return min(ready, key=lambda pod: pod.in_flight, default=None)


def _no_endpoints() -> web.Response:
    response = json_response(answers.error("no ready endpoints", "ServiceUnavailable", 503), 503)
    response.headers["x-llm-d-request-dropped-reason"] = DroppedReason.NO_ENDPOINTS
    return response
