"""Several pods and their router in one process, for tests, benchmarks and the demo.

async with SimulatedPool(pods=2, latency=0.1) as pool:
    pool.faults.set(error=0.2, error_status=503)
    ...  # send requests to pool.url
    assert not pool.ledger.repeated()
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from async_processor.clock import Clock, SystemClock
from async_processor.lifecycle import SideTaskDied, Watch
from async_processor.sim.backend import Backend, ConstantBackend, ModelBackend
from async_processor.sim.control import Control
from async_processor.sim.engine import EngineSettings
from async_processor.sim.faults import NO_FAULTS, FaultPanel, Faults, FaultSwitch
from async_processor.sim.flow_control import FlowControl, Mode
from async_processor.sim.http_server import HttpServer, Routes
from async_processor.sim.ledger import Ledger
from async_processor.sim.pod import Pod, PodSettings
from async_processor.sim.pod_metrics import PodMetrics
from async_processor.sim.router import Router
from async_processor.sim.router_metrics import RouterMetrics
from async_processor.sim.saturation import pool_saturation


class SimulatedPool:
    """A pool of `pods` simulated vLLM servers behind one router.

    With `latency` (seconds) every answer takes just so long, and 0 answers at once; with None the
    batching model of `engine` decides. Port 0 takes any free port; pods get `pod_port_base` and
    the ports after it. `flow_control` says what the router does while the pool is saturated: its
    429 carries `retry_after` seconds, and held calls are dropped after `held_at_most` seconds.
    """

    def __init__(
        self,
        *,
        pods: int = 1,
        latency: float | None = None,
        engine: EngineSettings | None = None,
        name: str = "sim",
        model_name: str = "sim",
        strict_model: bool = False,
        faults: Faults = NO_FAULTS,
        flow_control: Mode = Mode.OFF,
        retry_after: float | None = 1.0,
        held_at_most: float = 60.0,
        host: str = "127.0.0.1",
        port: int = 0,
        pod_port_base: int = 0,
        seed: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        if pods < 1:
            raise ValueError(f"pods must be at least 1, not {pods}")
        self.name = name
        self.ledger = Ledger()
        self._clock = clock or SystemClock()
        self._latency = latency
        self._engine = engine or EngineSettings()
        self._settings = PodSettings(
            model_name=model_name,
            strict_model=strict_model,
            max_model_len=self._engine.max_model_len,
        )
        self.pods = [
            self._pod(f"{name}-{index}", faults, None if seed is None else seed + index)
            for index in range(pods)
        ]
        self.faults = FaultPanel([pod.faults for pod in self.pods])
        self._flow_control = FlowControl(
            flow_control, saturation=self.saturation, ttl=held_at_most, clock=self._clock
        )
        self._router = HttpServer(self._router_routes(retry_after), host=host, port=port)
        self._servers = [
            HttpServer(
                self._pod_routes(pod), host=host, port=pod_port_base and pod_port_base + index
            )
            for index, pod in enumerate(self.pods)
        ]
        self._watch = Watch()

    @property
    def url(self) -> str:
        """The router's base URL; known once the pool has started."""
        return self._router.url

    @property
    def metrics_url(self) -> str:
        """The router's metrics."""
        return f"{self.url}/metrics"

    @property
    def pod_urls(self) -> list[str]:
        """The pods' base URLs; each serves `/metrics` too."""
        return [server.url for server in self._servers]

    @property
    def pod_metrics_urls(self) -> list[str]:
        """The pods' metrics."""
        return [f"{url}/metrics" for url in self.pod_urls]

    def saturation(self) -> float:
        """The saturation of the ready pods now, as the router's metrics show it."""
        return pool_saturation([pod.load for pod in self.pods if pod.ready])

    async def start(self) -> None:
        """Open every port; raises OSError when one is taken."""
        try:
            for server in (self._router, *self._servers):
                await server.start()
        except OSError:
            await self.stop()
            raise
        for pod in self.pods:
            self._watch.spawn(f"simulated {pod.name}", pod.backend.run())
        self._watch.spawn("simulated flow control", self._flow_control.run())

    async def stop(self) -> None:
        """Close every port and connection at once."""
        for server in (self._router, *self._servers):
            await server.stop()
        await self._watch.stop()

    async def failure(self) -> SideTaskDied:
        """Wait until a part of the simulation ends by itself, and say which."""
        return await self._watch.failure()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    def _pod(self, name: str, faults: Faults, seed: int | None) -> Pod:
        metrics = PodMetrics(self._settings.model_name)
        return Pod(
            name,
            self._settings,
            backend=self._backend(metrics),
            metrics=metrics,
            faults=FaultSwitch(faults, seed=seed),
            ledger=self.ledger,
            clock=self._clock,
        )

    def _backend(self, metrics: PodMetrics) -> Backend:
        if self._latency is not None:
            return ConstantBackend(self._latency, clock=self._clock, metrics=metrics)
        return ModelBackend(self._engine, clock=self._clock, metrics=metrics)

    def _pod_routes(self, pod: Pod) -> Routes:
        control = Control(self.ledger, FaultPanel([pod.faults]))
        return {**pod.routes(), **control.routes()}

    def _router_routes(self, retry_after: float | None) -> Routes:
        router = Router(
            self.pods,
            flow_control=self._flow_control,
            metrics=RouterMetrics(self.name, self._settings.model_name),
            retry_after=retry_after,
        )
        return {**router.routes(), **Control(self.ledger, self.faults).routes()}
