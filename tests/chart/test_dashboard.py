"""Every panel asks a question, and Prometheus, which scraped a real daemon at work, answers it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from async_processor.producer import Producer, Submission
from async_processor.redis_io.connect import open_client
from async_processor.sim.pool import SimulatedPool
from async_processor.telemetry.metrics import Metrics
from async_processor.telemetry.series import PREFIX
from async_processor.testing.daemons import DaemonProcess, short_lived_settings
from async_processor.testing.eventually import eventually
from async_processor.testing.prometheus import PrometheusServer

CHART = Path(__file__).parents[2] / "charts" / "async-processor"
DASHBOARD: Final = json.loads((CHART / "files" / "dashboard.json").read_text())
PANELS: Final = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
NEEDS: Final = {
    "How old are messages when they are claimed?": "Pub/Sub: Redis knows no time of publishing",
}
"""Questions that this daemon cannot be asked, and what they would need."""
TENANT: Final = "team-a"
CLOSED: Final = "closed"
"""A queue whose gate lets nothing through."""
BUDGET_KEY: Final = "nothing"
VARIABLES: Final = {"$namespace": ".*", "$pool": ".*", "$queue": ".*", "$__rate_interval": "1m"}


def queries() -> Iterator[tuple[str, str]]:
    """Each query as Grafana sends it, and the question that it answers."""
    for panel in PANELS:
        for target in panel["targets"]:
            query = target["expr"]
            for name, value in VARIABLES.items():
                query = query.replace(name, value)
            yield panel["title"], query


def test_every_panel_asks_a_question_and_explains_the_answer() -> None:
    for panel in PANELS:
        assert panel["title"].endswith("?")
        assert panel["description"]
        assert panel["targets"]
    assert len({panel["title"] for panel in PANELS}) == len(PANELS)
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (place["x"] + right, place["y"] + down)
            for right in range(place["w"])
            for down in range(place["h"])
        }
        assert max(right for right, _ in cells) < 24
        assert not cells & taken
        taken |= cells


def test_only_variables_that_exist_are_used() -> None:
    known = {f"${variable['name']}" for variable in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\w+", json.dumps(PANELS)))
    assert used <= known | {"$__rate_interval"}


def test_every_metric_that_is_asked_for_exists() -> None:
    metrics = Metrics()
    metrics.queue("q", "q", "p")
    metrics.pool("p")
    declared = set(re.findall(r"^# TYPE (\S+)", metrics.exposition().decode(), re.MULTILINE))
    asked = {
        name.removesuffix("_bucket")
        for _, query in queries()
        for name in re.findall(rf"{PREFIX}\w+", query)
    }
    assert asked <= declared


@pytest.fixture
async def pool() -> AsyncIterator[SimulatedPool]:
    async with SimulatedPool(pods=1, latency=0.05) as pool:
        yield pool


@pytest.fixture
async def daemon(
    redis_url: str, pool: SimulatedPool, tmp_path: Path
) -> AsyncIterator[DaemonProcess]:
    saturation = {
        "type": "endpoint-scrape",
        "url": f"{pool.url}/metrics",
        "metric": "llm_d_epp_flow_control_pool_saturation",
        "baseline": 0.1,
    }
    quota = {"type": "redis-quota", "mode": "concurrency", "limits": {TENANT: 3}}
    gates = {
        "request-sortedset": {"type": "composite", "gates": [saturation, quota]},
        CLOSED: {"type": "redis", "budget_key": BUDGET_KEY},
    }
    queues = [
        {"queue_name": name, "igw_base_url": pool.url, "gate": gate} for name, gate in gates.items()
    ]
    settings = short_lived_settings(redis_url, pool.url, workers=4, transport={"queues": queues})
    await _let_one_wait(redis_url)
    async with DaemonProcess(settings, tmp_path) as daemon:
        yield daemon


async def test_every_question_is_answered(
    daemon: DaemonProcess,
    redis_url: str,
    prometheus_for: Callable[..., PrometheusServer],
) -> None:
    prometheus = prometheus_for(f"127.0.0.1:{daemon.metrics_port}")
    open_questions = [query for title, query in queries() if title not in NEEDS]
    async with Producer(redis_url) as producer, httpx.AsyncClient(timeout=60) as client:

        async def all_answered() -> bool:
            """Some work for each look: rates need two scrapes that differ."""
            await producer.submit_many([_request() for _ in range(4)])
            remaining = [
                query for query in open_questions if not await _answered(client, prometheus, query)
            ]
            open_questions[:] = remaining
            return not remaining

        try:
            await eventually(all_answered, within=90)
        except TimeoutError:
            pytest.fail("no answer to " + "\n".join(open_questions))


def _request() -> Submission:
    return Submission(
        payload={"model": "sim", "prompt": "hi", "max_tokens": 4},
        metadata={"userid": TENANT},
        deadline="10m",
    )


async def _let_one_wait(redis_url: str) -> None:
    """Behind the closed gate."""
    client = open_client(redis_url)
    await client.execute("SET", BUDGET_KEY, 0)
    await client.close()
    async with Producer(redis_url, queue=CLOSED) as producer:
        await producer.submit_many([_request()])


async def _answered(client: httpx.AsyncClient, prometheus: PrometheusServer, query: str) -> bool:
    answer = await client.get(f"{prometheus.url}/api/v1/query", params={"query": query})
    body: dict[str, Any] = answer.json()
    assert body["status"] == "success", (query, body)
    values = [float(series["value"][1]) for series in body["data"]["result"]]
    return any(math.isfinite(value) for value in values)
