"""The services of the compose file, started as processes: their commands and files as they are, but
for hosts and ports. Each finds the others, and work is done."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml

from async_processor.testing.daemons import DaemonProcess
from async_processor.testing.eventually import eventually
from async_processor.testing.prometheus import PrometheusServer
from async_processor.testing.servers import RedisServer

ROOT: Final = Path(__file__).parents[2]
COMPOSE: Final = ROOT / "deploy" / "compose"
SERVICES: Final = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]
ALERTS: Final = ROOT / "charts" / "async-processor" / "files" / "alerts.yaml"
PROGRAMS: Final = Path(sys.executable).parent

SIGNS: Final = (
    "min(up) == 1 and count(up) == 4",  # the daemon, the router and two pods
    'llm_d_async_async_gate_metric_source_available{inference_pool="sim"} == 1',
    "llm_d_async_async_successful_requests_total > 0",
    'sum(vllm:num_requests_running{inference_pool="sim"}) > 0',
    'count(llm_d_async_async_tenant_started_requests_total{tenant=~"team-."} > 0) == 2',
    "sum(llm_d_async_async_quota_in_use) > 0",
)
"""What Prometheus knows once everything works together."""


def here(text: str, places: Mapping[str, str]) -> str:
    """The text with the services' places (host:port) in the network of compose replaced."""
    return re.sub(r"\b(?:pool|processor|prometheus):\d+", lambda found: places[found[0]], text)


@asynccontextmanager
async def process(*words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A program, and whatever it starts, until the end of the block."""
    found = f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"
    started = await asyncio.create_subprocess_exec(
        *words,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PATH": found},
        start_new_session=True,
    )
    try:
        yield started
    finally:
        os.killpg(started.pid, signal.SIGKILL)
        await started.wait()


@asynccontextmanager
async def simulated_pool() -> AsyncIterator[dict[str, str]]:
    """Where the router and the pods are, by their places in compose."""
    on_this_machine = ("--host", "127.0.0.1", "--port", "0", "--pod-port-base", "0", "--json")
    words = ("async-processor", *SERVICES["pool"]["command"], *on_this_machine)
    async with process(*words) as started:
        assert started.stdout is not None
        urls = json.loads(await started.stdout.readline())
        listening = [url.removeprefix("http://") for url in (urls["url"], *urls["pod_urls"])]
        yield dict(zip(("pool:8000", "pool:8100", "pool:8101"), listening, strict=True))


@pytest.mark.timeout(600)
async def test_the_services_find_each_other_and_work_is_done(
    redis_server: RedisServer,
    prometheus_for: Callable[..., PrometheusServer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REDIS_URL", redis_server.url)
    daemon = DaemonProcess({}, tmp_path)
    async with simulated_pool() as places, httpx.AsyncClient(timeout=60) as client:
        places["processor:9090"] = f"127.0.0.1:{daemon.metrics_port}"
        scraped = here((COMPOSE / "prometheus.yaml").read_text(), places)
        prometheus = prometheus_for(configuration=scraped.replace("alerts.yaml", str(ALERTS)))
        places["prometheus:9090"] = prometheus.url.removeprefix("http://")
        daemon.configure(yaml.safe_load(here((COMPOSE / "config.yaml").read_text(), places)))

        async def asked(path: str, **params: str) -> Any:
            answer = await client.get(f"{prometheus.url}/api/v1/{path}", params=params)
            return answer.json()["data"]

        async with daemon, process("sh", str(COMPOSE / "traffic.sh")):
            for sign in SIGNS:

                async def seen(query: str = sign) -> bool:
                    return bool((await asked("query", query=query))["result"])

                await eventually(seen, within=120)
        assert sum(len(group["rules"]) for group in (await asked("rules"))["groups"]) == 15
