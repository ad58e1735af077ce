"""Every alert fires for a real daemon in real trouble: what promtool proves of made-up series holds
(joins and labels included) for those that the daemon shows.

The rules are those that are shipped, with windows of some seconds and without patience.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from async_processor.producer import Producer, Submission
from async_processor.redis_io.connect import open_client
from async_processor.sim.faults import Faults
from async_processor.sim.pool import SimulatedPool
from async_processor.testing.daemons import DaemonProcess, short_lived_settings
from async_processor.testing.eventually import eventually
from async_processor.testing.prometheus import PrometheusServer
from async_processor.testing.servers import RedisServer

RULES: Final = (
    Path(__file__).parents[2] / "charts" / "async-processor" / "files" / "alerts.yaml"
).read_text()
WITHIN: Final = 80.0
WORKERS: Final = {"narrow": 1}
"""More than are ever needed for the others."""
PACE: Final = 0.3
"""Seconds between two rounds of traffic, and between two looks at the alerts."""

WHILE_REDIS_IS_THERE: Final = {
    ("HighRetryRate", "failing"),
    ("LowSuccessRate", "failing"),
    ("HighShedRate", "shed"),
    ("HighDeadlineExceededRate", "closed"),
    ("GateClosedWithBacklog", "closed"),
    ("GateSourceUnavailable", "closed"),
    ("DeadlinesAtRisk", "closed"),
    ("BacklogGrowingWhileIdle", "limited"),
    ("WorkersAtLimit", "narrow"),
    ("DeadLetters", "failing"),
}
AFTER_A_CRASH_AND_A_MISTAKE: Final = {
    ("LeasesReclaimed", "narrow"),
    ("Poison", "stuck"),
    ("ConfigReloadFailed", ""),
}
WITHOUT_REDIS: Final = {("ResultsNotWritten", ""), ("BacklogSourceUnavailable", "failing")}


def impatient(rules: str) -> str:
    """The rules as they are, for a test that cannot wait for minutes."""
    return re.sub(r"for: \w+", "for: 0s", re.sub(r"\[\d+[mh]\]", "[6s]", rules))


class Alerts:
    """What Prometheus says, as pairs of an alert and the queue or the pool that it is about."""

    def __init__(self, url: str, client: httpx.AsyncClient) -> None:
        self._url = url
        self._client = client

    async def fire(self, expected: set[tuple[str, str]]) -> None:
        """Wait until each of the alerts has fired."""
        missing = set(expected)

        async def all_fired() -> bool:
            missing.difference_update(await self._firing())
            return not missing

        try:
            await eventually(all_fired, within=WITHIN)
        except TimeoutError:
            pytest.fail(f"these alerts did not fire: {sorted(missing)}")

    async def _firing(self) -> Iterator[tuple[str, str]]:
        await asyncio.sleep(PACE)
        answer = await self._client.get(f"{self._url}/api/v1/alerts")
        found: Sequence[dict[str, Any]] = answer.json()["data"]["alerts"]
        labels = [each["labels"] for each in found if each["state"] == "firing"]
        return (
            (
                each["alertname"].removeprefix("AsyncProcessor"),
                each.get("queue_name") or each.get("pool_name", ""),
            )
            for each in labels
        )


@pytest.fixture
async def pools() -> AsyncIterator[dict[str, SimulatedPool]]:
    """Gateways by what is wrong with them; calls of the one that hangs end only with it."""
    made = {
        "healthy": SimulatedPool(latency=0.1),
        "failing": SimulatedPool(latency=0.0, faults=Faults(error=1.0)),
        "shedding": SimulatedPool(latency=0.0, faults=Faults(throttle=1.0, retry_after=None)),
        "hanging": SimulatedPool(latency=0.0, faults=Faults(hang=1.0)),
    }
    async with AsyncExitStack() as stack:
        for pool in made.values():
            await stack.enter_async_context(pool)
        yield made


@pytest.fixture
def settings(pools: Mapping[str, SimulatedPool], redis_server: RedisServer) -> dict[str, Any]:
    """Queues, each in a pool of its name and with a trouble of its own."""
    unread = {"type": "endpoint-scrape", "url": "http://127.0.0.1:9/", "metric": "nothing"}
    with_room = {
        "type": "endpoint-scrape",
        "url": pools["healthy"].metrics_url,
        "metric": "llm_d_epp_flow_control_pool_saturation",
        "baseline": 0.1,
    }
    per_tenant = {"type": "redis-quota", "mode": "concurrency", "limit": 1}
    gateways: dict[str, tuple[str, dict[str, Any]]] = {
        "failing": ("failing", {}),
        "shed": ("shedding", {}),
        "closed": ("healthy", {"gate": unread}),
        "limited": ("hanging", {"gate": per_tenant}),
        "narrow": ("hanging", {"gate": with_room}),
        "stuck": ("hanging", {}),
    }
    whole = short_lived_settings(redis_server.url, "")
    whole["transport"] |= {
        "max_deliveries": 1,
        "queues": [
            {
                "queue_name": name,
                "worker_pool_id": name,
                "igw_base_url": pools[gateway].url,
                **more,
            }
            for name, (gateway, more) in gateways.items()
        ],
    }
    whole["worker_pools"] = [{"id": name, "workers": WORKERS.get(name, 500)} for name in gateways]
    whole["retry"]["max_attempts"] = 4
    return whole


@asynccontextmanager
async def traffic(url: str) -> AsyncIterator[None]:
    """A few requests for every queue, again and again, and something that is no request."""
    async with AsyncExitStack() as stack:
        names = ("failing", "shed", "closed", "limited", "narrow", "stuck")
        producers = {
            name: await stack.enter_async_context(Producer(url, queue=name)) for name in names
        }
        client = open_client(url)
        stack.push_async_callback(client.close)

        async def flow() -> None:
            while True:
                for name, producer in producers.items():
                    # What comes to a closed gate so late can only expire.
                    late = [_request("1s")] if name == "closed" else []
                    await producer.submit_many([_request("5m"), *late])
                await client.execute("ZADD", "failing", 1.0, "no request")
                await asyncio.sleep(PACE)

        task = asyncio.create_task(flow())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _request(deadline: str) -> Submission:
    payload = {"model": "sim", "prompt": "hi", "max_tokens": 4}
    return Submission(payload=payload, deadline=deadline, metadata={"userid": "tenant"})


@pytest.mark.timeout(300)
async def test_every_alert_fires_for_a_daemon_in_trouble(
    settings: dict[str, Any],
    pools: Mapping[str, SimulatedPool],
    redis_server: RedisServer,
    prometheus_for: Callable[..., PrometheusServer],
    tmp_path: Path,
) -> None:
    async with (
        DaemonProcess(settings, tmp_path / "survivor") as survivor,
        DaemonProcess(settings, tmp_path / "victim") as victim,
        httpx.AsyncClient(timeout=10) as client,
    ):
        targets = [f"127.0.0.1:{daemon.metrics_port}" for daemon in (survivor, victim)]
        alerts = Alerts(prometheus_for(*targets, rules=impatient(RULES)).url, client)
        async with traffic(redis_server.url):
            await alerts.fire(WHILE_REDIS_IS_THERE)
            await eventually(lambda: victim.metric("inflight_requests", queue_name="stuck"))
            await victim.kill()
            survivor.replace_config("nonsense: true")
            await alerts.fire(AFTER_A_CRASH_AND_A_MISTAKE)
        redis_server.kill()
        await pools["hanging"].stop()  # so that calls end whose outcome nobody takes
        await alerts.fire(WITHOUT_REDIS)


def test_no_alert_is_left_out() -> None:
    shown = WHILE_REDIS_IS_THERE | AFTER_A_CRASH_AND_A_MISTAKE | WITHOUT_REDIS
    assert {f"AsyncProcessor{name}" for name, _ in shown} == set(re.findall(r"alert: (\w+)", RULES))
