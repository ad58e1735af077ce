"""Every alert fires for a real daemon in real trouble: what promtool proves of made-up series holds
(joins and labels included) for those that the daemon shows.

The failure modes of the operations guide are among the troubles. Of each, what the guide and the
dashboard ask Prometheus has an answer, and `status` says it in words.

The rules are those that are shipped, with windows of some seconds and without patience.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence, Set
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx
import msgspec
import pytest

from async_processor.producer import Producer, Submission
from async_processor.redis_io.connect import open_client
from async_processor.sim.engine import EngineSettings
from async_processor.sim.faults import Faults
from async_processor.sim.pool import SimulatedPool
from async_processor.testing.daemons import SHORT_LEASES, DaemonProcess, short_lived_settings
from async_processor.testing.eventually import eventually
from async_processor.testing.prometheus import PrometheusServer
from async_processor.testing.servers import RedisServer

T = TypeVar("T")
ROOT: Final = Path(__file__).parents[2]
FILES: Final = ROOT / "charts" / "async-processor" / "files"
RULES: Final = (FILES / "alerts.yaml").read_text()
PANELS: Final = {
    panel["title"]: [target["expr"] for target in panel["targets"]]
    for panel in json.loads((FILES / "dashboard.json").read_text())["panels"]
    if panel["type"] != "row"
}
GUIDE: Final = (ROOT / "docs" / "operations.md").read_text()
WITHIN: Final = 80.0
WORKERS: Final = {"narrow": 1, "patient": 8, "blind": 40}
"""More than are ever needed for the others."""
AT_ONCE: Final = {"patient": 6, "blind": 6}
"""Requests of a round of traffic, where it is not one."""
PACE: Final = 0.3
"""Seconds between two rounds of traffic, and between two looks at the alerts."""

WHILE_REDIS_IS_THERE: Final = {
    ("HighRetryRate", "failing"),
    ("LowSuccessRate", "failing"),
    ("HighShedRate", "shed"),
    ("HighDeadlineExceededRate", "closed"),
    ("GateClosedWithBacklog", "closed"),
    ("GateClosedWithBacklog", "patient"),
    ("GateSourceUnavailable", "closed"),
    ("GateSourceUnavailable", "blind"),
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


class FailureMode(msgspec.Struct, frozen=True, kw_only=True):
    """A section of the guide, produced in `queue`: the alert that tells of it, the panels that show
    it, and what `status` says."""

    queue: str
    alert: str
    panels: tuple[str, ...]
    says: str


FAILURE_MODES: Final = {
    "Backlog grows while workers idle": FailureMode(
        queue="limited",
        alert="BacklogGrowingWhileIdle",
        panels=("How much is waiting?", "Whose quota holds requests back?"),
        says="over their quotas: tenant",
    ),
    "Backlog grows at utilisation 1.0": FailureMode(
        queue="narrow",
        alert="WorkersAtLimit",
        panels=(
            "How much of the workers is used?",
            "What does the gate read against its threshold?",
        ),
        says="all workers of pool 'narrow' are busy",
    ),
    "High queue time with normal inference time": FailureMode(
        queue="patient",
        alert="GateClosedWithBacklog",
        panels=(
            "How many requests wait at gates, or for a worker?",
            "How long do requests wait from claim to call?",
            "How long do the calls take?",
        ),
        says="wait in memory, in workers' places",
    ),
    "Rising inference time with the gate open": FailureMode(
        queue="blind",
        alert="GateSourceUnavailable",
        panels=(
            "How long do the calls take?",
            "How far is the gate open?",
            "Can the gates and the backlog be read?",
        ),
        says="is open although its source cannot be read",
    ),
    "Deadlines missed": FailureMode(
        queue="closed",
        alert="HighDeadlineExceededRate",
        panels=(
            "How do requests end?",
            "How close are the waiting requests to their deadlines?",
        ),
        says="deadlines pass, the last",
    ),
    "Shedding": FailureMode(
        queue="shed",
        alert="HighShedRate",
        panels=("How many calls are sent, retried or shed?",),
        says="RATE_LIMIT: HTTP 429",
    ),
}


def section(title: str) -> str:
    """What the guide says about a failure mode."""
    heading = rf"^### {re.escape(title)}$"
    (text,) = re.findall(heading + "(.*?)(?=^##)", GUIDE, re.MULTILINE | re.DOTALL)
    return str(text)


def questions(title: str) -> Iterator[str]:
    """What the guide and the dashboard ask about a failure mode, of its queue and pool alone."""
    mode = FAILURE_MODES[title]
    asked = re.findall(r"```promql\n(.*?)```", section(title), re.DOTALL)
    asked += [query for panel in mode.panels for query in PANELS[panel]]
    variables = {"$queue": mode.queue, "$pool": mode.queue, "$namespace": ".*"}
    for query in asked:
        yield re.sub(r"\$\w+", lambda found: variables.get(found[0], "6s"), query)


def impatient(rules: str) -> str:
    """The rules as they are, for a test that cannot wait for minutes."""
    return re.sub(r"for: \w+", "for: 0s", re.sub(r"\[\d+[mh]\]", "[6s]", rules))


class Watched:
    """What Prometheus and `status` say of the troubles."""

    def __init__(
        self, prometheus: PrometheusServer, daemon: DaemonProcess, client: httpx.AsyncClient
    ) -> None:
        self._api = f"{prometheus.url}/api/v1"
        self._daemon = daemon
        self._client = client

    async def fire(self, expected: set[tuple[str, str]]) -> None:
        """Wait until each of the alerts has fired."""
        await _seen(expected, self._firing, "these alerts did not fire")

    async def answer(self, queries: set[str]) -> None:
        """Wait until each of the queries has had an answer."""

        async def answered(remaining: Set[str]) -> set[str]:
            return {query for query in remaining if await self._has_answer(query)}

        await _seen(queries, answered, "these queries had no answer")

    async def say(self, words: set[str]) -> None:
        """Wait until `/status`, whose words the command prints, has said each of these."""

        async def said(remaining: Set[str]) -> set[str]:
            text = json.dumps((await self._daemon.status())["queues"])
            return {words for words in remaining if words in text}

        await _seen(words, said, "`/status` did not say")

    async def _firing(self, _: Set[tuple[str, str]]) -> set[tuple[str, str]]:
        answer = await self._client.get(f"{self._api}/alerts")
        found: Sequence[dict[str, Any]] = answer.json()["data"]["alerts"]
        labels = [each["labels"] for each in found if each["state"] == "firing"]
        return {
            (
                each["alertname"].removeprefix("AsyncProcessor"),
                each.get("queue_name") or each.get("pool_name", ""),
            )
            for each in labels
        }

    async def _has_answer(self, query: str) -> bool:
        answer = await self._client.get(f"{self._api}/query", params={"query": query})
        series: Sequence[dict[str, Any]] = answer.json()["data"]["result"]
        return any(math.isfinite(float(each["value"][1])) for each in series)


async def _seen(
    expected: set[T], look: Callable[[Set[T]], Awaitable[set[T]]], complaint: str
) -> None:
    """Look again and again until each of them has been seen once."""
    missing = set(expected)

    async def all_seen() -> bool:
        with suppress(httpx.TimeoutException):  # a starved machine answers late
            missing.difference_update(await look(frozenset(missing)))
        if missing:
            await asyncio.sleep(PACE)
        return not missing

    try:
        await eventually(all_seen, within=WITHIN)
    except TimeoutError:
        pytest.fail(f"{complaint}: {sorted(map(str, missing))}")


@pytest.fixture
async def pools() -> AsyncIterator[dict[str, SimulatedPool]]:
    """Gateways by what is wrong with them; calls of the one that hangs end only with it."""
    made = {
        "healthy": SimulatedPool(latency=0.1),
        "failing": SimulatedPool(latency=0.0, faults=Faults(error=1.0)),
        "shedding": SimulatedPool(latency=0.0, faults=Faults(throttle=1.0, retry_after=None)),
        "hanging": SimulatedPool(latency=0.0, faults=Faults(hang=1.0)),
        "unhurried": SimulatedPool(latency=1.0),
        "overrun": SimulatedPool(engine=EngineSettings(max_num_seqs=1, step_seconds=0.1)),
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
    one_by_one = {
        "type": "tier-priority-admission",
        "saturation_gate": "local-max-concurrency",
        "saturation_gate_params": {"limit": 1},
    }
    within_quota = {"type": "redis-quota", "gating_mode": "classifying", "limit": 100_000}
    gateways: dict[str, tuple[str, dict[str, Any]]] = {
        "failing": ("failing", {}),
        "shed": ("shedding", {}),
        "closed": ("healthy", {"gate": unread}),
        "limited": ("hanging", {"gate": per_tenant}),
        "narrow": ("hanging", {"gate": with_room}),
        "stuck": ("hanging", {}),
        "patient": (
            "unhurried",
            {"gate": {"type": "composite", "gates": [within_quota, one_by_one]}},
        ),
        "blind": ("overrun", {"gate": unread | {"fallback": 1.0}}),
    }
    whole = short_lived_settings(redis_server.url, "")
    whole["transport"] |= {
        **SHORT_LEASES,
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
        names = ("failing", "shed", "closed", "limited", "narrow", "stuck", "patient", "blind")
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
                    count = AT_ONCE.get(name, 1)
                    await producer.submit_many([_request("5m") for _ in range(count)] + late)
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


@pytest.mark.timeout(480)
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
        httpx.AsyncClient(timeout=60) as client,
    ):
        targets = [f"127.0.0.1:{daemon.metrics_port}" for daemon in (survivor, victim)]
        prometheus = prometheus_for(*targets, rules=impatient(RULES))
        watched = Watched(prometheus, survivor, client)
        async with traffic(redis_server.url):
            await watched.fire(WHILE_REDIS_IS_THERE)
            await watched.answer({query for each in FAILURE_MODES for query in questions(each)})
            await watched.say({mode.says for mode in FAILURE_MODES.values()})
            await eventually(lambda: victim.metric("inflight_requests", queue_name="stuck"))
            await victim.kill()
            survivor.replace_config("nonsense: true")
            await watched.fire(AFTER_A_CRASH_AND_A_MISTAKE)
        redis_server.kill()
        await pools["hanging"].stop()  # so that calls end whose outcome nobody takes
        await watched.fire(WITHOUT_REDIS)


def test_every_failure_mode_of_the_guide_is_produced_and_has_its_alert() -> None:
    (text,) = re.findall(r"^## Why does the backlog(.*?)^## ", GUIDE, re.MULTILINE | re.DOTALL)
    assert list(FAILURE_MODES) == re.findall(r"^### (.+)$", text, re.MULTILINE)
    for title, mode in FAILURE_MODES.items():
        assert (mode.alert, mode.queue) in WHILE_REDIS_IS_THERE
        assert f"[{mode.alert}](#asyncprocessor{mode.alert.lower()})" in section(title)


def test_no_alert_is_left_out() -> None:
    shown = WHILE_REDIS_IS_THERE | AFTER_A_CRASH_AND_A_MISTAKE | WITHOUT_REDIS
    assert {f"AsyncProcessor{name}" for name, _ in shown} == set(re.findall(r"alert: (\w+)", RULES))
