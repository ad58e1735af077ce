"""One suite for every transport: `probe` is an empty broker of each kind, one after the other.

A new kind adds its probe to `PROBES`, and what it cannot do is missing from its capabilities;
tests that need it (`@pytest.mark.needs`) are skipped for it, with the reason.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial

import pytest

from async_processor.testing.memory_probe import memory_probe
from async_processor.testing.probe import BrokerProbe
from async_processor.testing.pubsub_emulator import emulator_binary
from async_processor.testing.pubsub_probe import pubsub_emulator_probe, pubsub_fake_probe
from async_processor.testing.redis_probe import redis_probe
from async_processor.testing.servers import server_binaries
from async_processor.transport.base import Transport

ProbeFactory = Callable[[], AbstractAsyncContextManager[BrokerProbe]]

PROBES: dict[str, ProbeFactory] = {
    "memory": memory_probe,
    "pubsub-fake": pubsub_fake_probe,
    "pubsub-emulator": pubsub_emulator_probe,
    **{name: partial(redis_probe, binary) for name, binary in server_binaries().items()},
}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "needs(*capabilities): what a broker must be able to do for this test"
    )


@pytest.fixture(params=PROBES)
async def probe(request: pytest.FixtureRequest) -> AsyncIterator[BrokerProbe]:
    if request.param == "pubsub-emulator" and emulator_binary() is None:
        pytest.skip("the Google Cloud SDK is not installed")
    async with PROBES[request.param]() as probe:
        for mark in request.node.iter_markers("needs"):
            for capability in mark.args:
                if capability not in probe.capabilities:
                    pytest.skip(f"{request.param} has no {capability}")
        yield probe


@pytest.fixture
async def replica(probe: BrokerProbe) -> Transport:
    return await probe.replica()
