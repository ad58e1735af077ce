"""A daemon whose log cannot be written works on, and ends as any other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from async_processor.producer import Producer, Submission
from async_processor.testing.daemons import DaemonProcess
from async_processor.testing.gateway import Gateway

FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
async def test_a_full_disk_for_logs_ends_nothing(
    fleet: Callable[..., DaemonProcess], producer: Producer
) -> None:
    async with Gateway() as gateway:
        daemon = fleet(gateway.url)
        with daemon.logging_to(FULL):
            await daemon.start()
        handle = await producer.submit(Submission(payload={"prompt": "hi"}, deadline="10m"))
        assert (await producer.result(handle)).status_code == 200
        assert await daemon.terminate() == 0
