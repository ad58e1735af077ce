"""Evaluates the configured gates against their real sources, and consumes nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import msgspec

from async_processor.admission.base import Gate, GateState
from async_processor.config.settings import Settings
from async_processor.daemon.build import build


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """What a gate said; `place` is the queue or the pool that it stands at."""

    place: str
    state: GateState


async def watch(settings: Settings, interval: float) -> AsyncGenerator[Sequence[Watched], None]:
    """The state of every gate, every `interval` seconds, without end.

    Only gates and their sources are started: no queue is read and no message is claimed.
    """
    parts = build(settings)
    gates, clock = parts.shared.gates, parts.shared.clock
    topology = parts.topology
    places: list[tuple[str, Gate]] = [
        *((f"queue {route.queue.id}", route.gate) for route in topology.routes),
        *((f"pool {pool.name}", pool.gate) for pool in topology.pools),
    ]
    async with AsyncExitStack() as stack:
        services: Sequence[Any] = (gates.sensors, gates.redis, topology)
        for service in services:
            await service.start()
            stack.push_async_callback(service.stop)
        while True:
            await clock.sleep(interval)
            yield [Watched(place=place, state=gate.state()) for place, gate in places]
