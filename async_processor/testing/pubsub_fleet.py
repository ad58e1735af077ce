"""Daemons on one Pub/Sub server, the requests that they work on, and what came of them."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from async_processor.testing.daemons import DaemonProcess
from async_processor.testing.pubsub_scene import PROJECT, PubSubScene

LEASE: Final = 10
"""Seconds, the shortest there is: so long the messages of a killed daemon are away."""


def pubsub_settings(gateway: str, *, workers: int = 8, **topic: Any) -> dict[str, Any]:
    """A daemon's configuration for the project of `PubSubScene`."""
    return {
        "transport": {
            "type": "gcp-pubsub",
            "project_id": PROJECT,
            "result_topic_id": "results",
            "lease_ttl": LEASE,
            "topics": [{"subscriber_id": "requests-sub", "igw_base_url": gateway, **topic}],
        },
        "worker_pools": [{"id": "default", "workers": workers}],
        "retry": {"base_delay": "500ms", "max_delay": "1s"},
        "drain_timeout": "20s",
    }


def requests(count: int, *, left: float = 600.0) -> list[dict[str, Any]]:
    """Bare requests, by which the simulated pool counts its calls."""
    deadline = time.time() + left
    return [
        {
            "id": f"r-{number}",
            "deadline": deadline,
            "payload": {"prompt": "hi", "max_tokens": 4, "user": f"r-{number}"},
        }
        for number in range(count)
    ]


def fleet(folder: Path, settings: Mapping[str, Any], count: int) -> list[DaemonProcess]:
    """So many daemons of one configuration."""
    return [DaemonProcess(settings, folder / f"daemon-{number}") for number in range(count)]


async def kill_in_turn(daemons: Sequence[DaemonProcess], kills: int, every: float) -> None:
    """SIGKILL one of them after the other, and start it again at once."""
    for daemon in itertools.islice(itertools.cycle(daemons), kills):
        await asyncio.sleep(every)
        await daemon.kill()
        await daemon.spawn()


async def doubles(scene: PubSubScene) -> dict[str, int]:
    """The ids that have more than one result, when all that will come has come."""
    before = -1
    while len(scene.answers) != before:
        before = len(scene.answers)
        await scene.collect()
    counts = Counter(answer.id for answer in scene.answers)
    return {request_id: count for request_id, count in counts.items() if count > 1}
