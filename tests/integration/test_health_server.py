"""The operators' HTTP servers, asked over HTTP: health, readiness, status and metrics.

Proves the words and codes that probes rely on, that a broker in trouble is asked at most once a
second and never waited for longer than it may, and that no secret gets out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from async_processor.clock import SystemClock
from async_processor.errors import BrokerUnavailable, ConfigurationError
from async_processor.telemetry.exposition import metrics_server
from async_processor.telemetry.health import BrokerProbe, health_server
from async_processor.telemetry.metrics import Metrics
from async_processor.telemetry.web import WebServer
from async_processor.testing.clock import ManualClock

LOCAL = "127.0.0.1"


class Daemon:
    """Stands in for what the health server asks."""

    def __init__(self) -> None:
        self.serving = True
        self.error: Exception | None = None
        self.pings = 0

    def is_serving(self) -> bool:
        return self.serving

    async def ping(self) -> None:
        self.pings += 1
        if self.error:
            raise self.error

    async def status(self) -> Mapping[str, Any]:
        return {"queues": []}


@asynccontextmanager
async def running(server: WebServer) -> AsyncIterator[str]:
    await server.start()
    try:
        yield f"http://{LOCAL}:{server.port}"
    finally:
        await server.stop()


def health(daemon: Daemon, *, port: int = 0, bearer_token: str = "") -> WebServer:
    return health_server(
        serving=daemon.is_serving,
        ping=daemon.ping,
        status=daemon.status,
        clock=SystemClock(),
        port=port,
        bind=LOCAL,
        bearer_token=bearer_token,
    )


async def get(url: str, **headers: str) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as response:
        if response.content_type == "application/json":
            return response.status, await response.json()
        return response.status, await response.text()


async def test_alive_whatever_else() -> None:
    daemon = Daemon()
    daemon.serving, daemon.error = False, BrokerUnavailable()
    async with running(health(daemon)) as url:
        assert await get(f"{url}/healthz") == (200, {"status": "ok"})


async def test_ready() -> None:
    async with running(health(Daemon())) as url:
        assert await get(f"{url}/readyz") == (200, {"status": "ready"})


async def test_not_ready_while_starting_or_draining_without_asking_the_broker() -> None:
    daemon = Daemon()
    async with running(health(daemon)) as url:
        await get(f"{url}/readyz")
        daemon.serving = False  # shows at once, although the last answer is remembered
        assert await get(f"{url}/readyz") == (503, {"status": "not ready"})
        assert daemon.pings == 1


async def test_not_ready_with_the_reason_while_the_broker_is_away() -> None:
    daemon = Daemon()
    daemon.error = BrokerUnavailable("redis://user:hunter2@h:6379 refuses\nconnections")
    async with running(health(daemon)) as url:
        assert await get(f"{url}/readyz") == (
            503,
            {"status": "not ready", "error": "redis://user:***@h:6379 refuses\\nconnections"},
        )


async def test_status_does_not_wait_for_the_broker_first() -> None:
    asked = asyncio.Event()

    class Slow(Daemon):
        async def ping(self) -> None:
            await asked.wait()

        async def status(self) -> Mapping[str, Any]:
            asked.set()
            return await super().status()

    async with running(health(Slow())) as url:
        assert await get(f"{url}/status") == (200, {"ready": True, "queues": []})


async def test_many_probes_ask_the_broker_once() -> None:
    daemon = Daemon()
    async with running(health(daemon)) as url:
        replies = await asyncio.gather(*(get(f"{url}/readyz") for _ in range(10)))
    assert {status for status, _ in replies} == {200}
    assert daemon.pings < 10  # one a second, however slow this machine is


async def test_the_brokers_answer_is_remembered_for_a_second() -> None:
    daemon, clock = Daemon(), ManualClock()
    probe = BrokerProbe(daemon.ping, clock)
    assert await probe.error() == ""
    daemon.error = BrokerUnavailable("gone")
    await clock.advance(0.9)
    assert await probe.error() == ""
    await clock.advance(0.1)
    assert await probe.error() == "gone"
    assert daemon.pings == 2


async def test_a_broker_that_hangs_is_not_waited_for() -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    probe = BrokerProbe(hang, ManualClock(), timeout=0.05)
    assert await probe.error() == "the broker did not answer within 0.05 s"


async def test_status_is_what_the_daemon_says() -> None:
    async with running(health(Daemon())) as url:
        assert await get(f"{url}/status") == (200, {"ready": True, "queues": []})


@pytest.mark.parametrize(("serving", "error"), [(False, None), (True, BrokerUnavailable())])
async def test_status_and_the_probe_agree_on_being_ready(
    serving: bool, error: Exception | None
) -> None:
    daemon = Daemon()
    daemon.serving, daemon.error = serving, error
    async with running(health(daemon)) as url:
        assert (await get(f"{url}/readyz"))[0] == 503
        assert await get(f"{url}/status") == (200, {"ready": False, "queues": []})


async def test_the_bearer_token_guards_status_and_not_the_probes() -> None:
    async with running(health(Daemon(), bearer_token="hunter2")) as url:
        assert (await get(f"{url}/status"))[0] == 401
        assert (await get(f"{url}/status", Authorization="Bearer wrong"))[0] == 401
        assert (await get(f"{url}/status", Authorization="Bearer \xff"))[0] == 401
        assert (await get(f"{url}/status", Authorization="Bearer hunter2"))[0] == 200
        assert (await get(f"{url}/healthz"))[0] == 200
        assert (await get(f"{url}/readyz"))[0] == 200


async def test_metrics() -> None:
    metrics = Metrics()
    metrics.queue("q", "n", "p").succeeded()
    async with running(metrics_server(metrics, port=0, bind=LOCAL)) as url:
        status, text = await get(f"{url}/metrics")
    assert status == 200
    assert (
        "llm_d_async_async_successful_requests_total"
        '{pool_name="p",queue_id="q",queue_name="n"} 1.0' in text
    )


async def test_metrics_say_their_format() -> None:
    async with (
        running(metrics_server(Metrics(), port=0, bind=LOCAL)) as url,
        aiohttp.ClientSession() as session,
        session.get(f"{url}/metrics") as response,
    ):
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"


async def test_the_bearer_token_guards_metrics() -> None:
    async with running(metrics_server(Metrics(), port=0, bind=LOCAL, bearer_token="t")) as url:
        assert (await get(f"{url}/metrics"))[0] == 401
        assert (await get(f"{url}/metrics", Authorization="Bearer t"))[0] == 200


async def test_other_paths_and_methods_are_refused() -> None:
    async with running(health(Daemon())) as url:
        assert (await get(f"{url}/"))[0] == 404
        async with aiohttp.ClientSession() as session, session.post(f"{url}/healthz") as response:
            assert response.status == 405


async def test_a_port_in_use_is_a_configuration_error_that_names_it() -> None:
    async with running(health(Daemon())) as url:
        port = int(url.rsplit(":", 1)[1])
        with pytest.raises(ConfigurationError) as raised:
            await health(Daemon(), port=port).start()
    assert str(raised.value) == (
        f"server.health_port: port {port} is in use; stop what listens there or choose another port"
    )


async def test_an_address_of_another_machine_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match=r"192\.0\.2\.1"):
        await metrics_server(Metrics(), port=0, bind="192.0.2.1").start()


async def test_starting_and_stopping_twice_does_nothing() -> None:
    server = health(Daemon())
    await server.start()
    port = server.port
    await server.start()
    assert server.port == port
    await server.stop()
    await server.stop()
    await server.start()  # and it can be started again
    await server.stop()
