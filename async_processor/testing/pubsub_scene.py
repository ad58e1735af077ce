"""Topics and subscriptions as `pubsub setup` makes them, for tests of the daemon."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from async_processor.clock import SystemClock
from async_processor.errors import BrokerUnavailable
from async_processor.google_io.client import PubSubClient
from async_processor.google_io.errors import Exists
from async_processor.google_io.values import Message, NewSubscription
from async_processor.testing.eventually import eventually
from async_processor.wire import result as results
from async_processor.wire.result import Result

PROJECT: Final = "test-project"
REQUESTS: Final = f"projects/{PROJECT}/topics/requests"
REQUESTS_SUB: Final = f"projects/{PROJECT}/subscriptions/requests-sub"
RESULTS: Final = f"projects/{PROJECT}/topics/results"
RESULTS_SUB: Final = f"projects/{PROJECT}/subscriptions/results-sub"
DEAD: Final = f"projects/{PROJECT}/topics/dead"
_LOOK: Final = 3.0
"""Seconds that one look for results waits for the first."""

DEAD_SUB: Final = f"projects/{PROJECT}/subscriptions/dead-sub"


class PubSubScene:
    """A project on the server at `host`: requests, results, dead letters, one subscription each."""

    def __init__(self, host: str) -> None:
        self.client = PubSubClient(SystemClock(), emulator=host)
        self.answers: list[Result] = []
        """Every result so far, doubles included."""

    async def open(self, *, ack_deadline: int = 10, exactly_once: bool = True) -> None:
        """Make what is not there yet."""
        await self.client.open()
        for topic in (REQUESTS, RESULTS, DEAD):
            await self._made(self.client.create_topic(topic))
        for name, topic in ((RESULTS_SUB, RESULTS), (DEAD_SUB, DEAD)):
            await self._subscribe(NewSubscription(name=name, topic=topic, ack_deadline=60))
        await self._subscribe(
            NewSubscription(
                name=REQUESTS_SUB,
                topic=REQUESTS,
                ack_deadline=ack_deadline,
                exactly_once=exactly_once,
                dead_letter_topic=DEAD,
                max_delivery_attempts=100,
            )
        )

    async def _subscribe(self, wanted: NewSubscription) -> None:
        await self._made(self.client.create_subscription(wanted))

    @staticmethod
    async def _made(creation: Any) -> None:
        try:
            await creation
        except Exists:
            return

    async def close(self) -> None:
        await self.client.close()

    async def submit(
        self, *requests: Mapping[str, Any], attributes: Mapping[str, str] | None = None
    ) -> None:
        """Publish bare requests."""
        messages = [
            Message(data=json.dumps(request).encode(), attributes=attributes or {})
            for request in requests
        ]
        for start in range(0, len(messages), 500):
            await self.client.publish(REQUESTS, messages[start : start + 500])

    async def answered(self, count: int, *, within: float = 60.0) -> Mapping[str, Result]:
        """Wait until so many different requests have a result."""

        async def all_answered() -> bool:
            with suppress(BrokerUnavailable):
                await self.collect()
            return len({one.id for one in self.answers}) >= count

        await eventually(all_answered, within=within)
        return {one.id: one for one in self.answers}

    async def collect(self) -> None:
        """Take what results there are; waits a while for the first one."""
        found = await self.client.pull(RESULTS_SUB, 1000, _LOOK)
        self.answers += [results.decode(one.data) for one in found]
        if found:
            await self.client.acknowledge(RESULTS_SUB, [one.ack_id for one in found])
