"""What the README shows runs as it stands there, and its metrics table is that of the code."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from async_processor.sim.pool import SimulatedPool
from async_processor.telemetry.metrics import Metrics
from async_processor.telemetry.series import PREFIX
from async_processor.testing.daemons import DaemonProcess
from async_processor.testing.servers import RedisServer

Fleet = Callable[..., DaemonProcess]
README = (Path(__file__).parents[2] / "README.md").read_text()


def block(language: str, containing: str) -> str:
    """The code block of a language that contains a text."""
    blocks = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    (found,) = [each for each in blocks if containing in each]
    return str(found)


async def _run(*command: str, redis: RedisServer, text: str = "") -> str:
    def run() -> str:
        environment = {
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
            "REDIS_URL": redis.url,
        }
        done = subprocess.run(
            command,
            input=text,
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
            env=environment,
        )
        return done.stdout

    return await asyncio.to_thread(run)


async def test_the_first_request_in_python(fleet: Fleet, redis_server: RedisServer) -> None:
    program = block("python", "Producer").replace("redis://localhost:6379/0", redis_server.url)
    async with SimulatedPool(latency=0) as pool, fleet(pool.url):
        assert (await _run(sys.executable, "-c", program, redis=redis_server)).startswith("200 {")


async def test_the_first_request_by_redis_cli(fleet: Fleet, redis_server: RedisServer) -> None:
    script = block("sh", "ZADD").replace("redis-cli", f"redis-cli -p {redis_server.port}")
    async with SimulatedPool(latency=0) as pool, fleet(pool.url):
        printed = await _run("bash", "-eu", "-c", script, redis=redis_server)
    assert '"id":"hello-1","payload":' in printed
    assert '"status_code":200' in printed


async def test_the_first_request_by_the_command_line(
    fleet: Fleet, redis_server: RedisServer
) -> None:
    script = block("sh", "submit --deadline 10m --wait").replace(".venv/bin/", "")
    async with SimulatedPool(latency=0) as pool, fleet(pool.url):
        assert '"status_code":200' in await _run("bash", "-eu", "-c", script, redis=redis_server)


def test_the_metrics_table_is_that_of_the_code() -> None:
    metrics = Metrics()
    metrics.queue("q", "q", "p")
    metrics.pool("p")
    metrics.drain_limit("p")
    declared = re.findall(r"^# TYPE (\S+)", metrics.exposition().decode(), re.MULTILINE)
    exported = {name.removeprefix(PREFIX) for name in declared if name.startswith(PREFIX)}
    table = README[README.index("## Metrics") : README.index("On `health_port`")]
    first_columns = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    listed = {name for cell in first_columns for name in re.findall(r"`(\w+)`", cell)}
    assert listed == exported
