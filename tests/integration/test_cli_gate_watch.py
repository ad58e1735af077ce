"""`gate watch` shows what the daemon's gates would say, and touches no queue."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import yaml

from async_processor.sim.pool import SimulatedPool
from async_processor.testing.servers import RedisServer


async def test_gates_are_read_and_nothing_is_consumed(tmp_path: Path) -> None:
    async with SimulatedPool(latency=0) as pool:
        gate = {
            "type": "endpoint-scrape",
            "url": pool.metrics_url,
            "metric": "llm_d_epp_flow_control_pool_saturation",
            "labels": {"stage": "effective"},
            "baseline": 0.2,
        }
        config = tmp_path / "config.yaml"
        config.write_text(
            yaml.safe_dump(
                {
                    "transport": {
                        # nobody listens there: the broker is not needed
                        "url": "redis://127.0.0.1:1/0",
                        "queues": [{"igw_base_url": pool.url, "gate": gate}],
                    }
                }
            )
        )
        table = await _run("gate", "watch", "--config", str(config), "--count", "2")
        assert "queue request-sortedset" in table
        assert "0.800" in table
        lines = await _run("gate", "watch", "--config", str(config), "--count", "2", "--json")
        queue, default = json.loads(lines.splitlines()[-1])
        assert queue["state"]["budget"] == 0.8
        assert default["place"] == "pool default"


async def test_logs_stay_out_of_what_is_printed(redis_server: RedisServer, tmp_path: Path) -> None:
    """A quota's gate tells the log when it has found its Redis."""
    config = tmp_path / "config.yaml"
    gate = {"type": "redis-quota", "limit": 1}
    queue = {"igw_base_url": "http://gateway", "gate": gate}
    transport = {"url": redis_server.url, "queues": [queue]}
    config.write_text(yaml.safe_dump({"transport": transport}))
    lines = await _run("gate", "watch", "--config", str(config), "--count", "1", "--json")
    (look,) = lines.splitlines()
    assert json.loads(look)[0]["place"] == "queue request-sortedset"


async def _run(*words: str) -> str:
    def run() -> str:
        return subprocess.run(
            [sys.executable, "-m", "async_processor", *words],
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        ).stdout

    return await asyncio.to_thread(run)
