"""The contract suite's eyes and hands on Pub/Sub: the fake server, or Google's emulator."""

from __future__ import annotations

import asyncio
import atexit
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Final
from uuid import uuid4

from async_processor.clock import SystemClock
from async_processor.google_io.client import PubSubClient
from async_processor.google_io.values import Message, NewSubscription, Received
from async_processor.testing.probe import Capability
from async_processor.testing.pubsub_emulator import PubSubEmulator
from async_processor.testing.pubsub_fake import PubSubFake
from async_processor.transport.google_pubsub import GooglePubSub
from async_processor.transport.google_pubsub.leases import FORGIVEN
from async_processor.transport.settings import PubSubSettings
from async_processor.wire import dead_letter, pubsub_names
from async_processor.wire.dead_letter import DeadLetter

QUEUES: Final = (
    *("request-sortedset", "other-sortedset", "left", "right"),
    *("first-sortedset", "second-sortedset"),
)
RESULT_TOPICS: Final = ("result-list", "results-of-mine", "dead-letter-list")
_LOOK: Final = 0.3
"""Seconds for what was published to be there to be pulled."""


class FastClock(SystemClock):
    """Durations as a server measures them whose seconds are short."""

    def __init__(self, second: float) -> None:
        super().__init__()
        self._second = second

    def monotonic(self) -> float:
        return super().monotonic() / self._second


class PubSubProbe:
    """A `BrokerProbe` (see there) on a server at `host`, with topics and subscriptions of its own.

    A fake server can be looked into, and a second of its leases lasts as long as it says.
    """

    def __init__(self, host: str, fake: PubSubFake | None = None) -> None:
        self._host = host
        self._fake = fake
        self._second = fake.broker.second if fake else 1.0
        self._project = f"project-{uuid4().hex}"
        self._replicas: list[GooglePubSub] = []
        self._clock = SystemClock()
        self._seen: defaultdict[str, list[Received]] = defaultdict(list)
        self._pulls: dict[str, asyncio.Task[list[Received]]] = {}
        self.client = PubSubClient(self._clock, emulator=host)

    @property
    def capabilities(self) -> frozenset[Capability]:
        return frozenset({Capability.FENCED, Capability.INSTANT_RELEASE})

    @property
    def forgiven(self) -> int:
        return FORGIVEN

    async def open(self) -> None:
        """Make empty queues and topics."""
        await self.client.open()
        topics = (*QUEUES, *RESULT_TOPICS, "broker-dead-letters")
        await asyncio.gather(*map(self._create_topic, topics))
        await asyncio.gather(
            *map(self._create_subscription, RESULT_TOPICS),
            *(self._create_subscription(one, dead_letters="broker-dead-letters") for one in QUEUES),
        )

    async def _create_topic(self, name: str) -> None:
        await self.client.create_topic(self._topic(name))

    async def _create_subscription(self, name: str, *, dead_letters: str = "") -> None:
        full_name = self._subscription(name)
        await self.client.create_subscription(
            NewSubscription(
                name=full_name,
                topic=self._topic(name),
                ack_deadline=10,
                exactly_once=True,
                dead_letter_topic=dead_letters and self._topic(dead_letters),
                max_delivery_attempts=100,
            )
        )

    def _topic(self, name: str) -> str:
        return pubsub_names.topic(name, self._project)

    def _subscription(self, name: str) -> str:
        return pubsub_names.subscription(name, self._project)

    async def replica(self, *, lease_ttl: float = 60.0) -> GooglePubSub:
        settings = PubSubSettings(
            project_id=self._project,
            result_topic_id="result-list",
            dead_letter_topic_id="dead-letter-list",
            lease_ttl=lease_ttl,
        )
        clock = FastClock(self._second)
        client = PubSubClient(clock, emulator=self._host)
        transport = GooglePubSub(settings, dict.fromkeys(QUEUES, ""), client=client, clock=clock)
        self._replicas.append(transport)
        await transport.start()
        return transport

    async def close(self) -> None:
        await asyncio.gather(*(replica.stop() for replica in self._replicas))
        for pull in self._pulls.values():
            pull.cancel()
        await asyncio.gather(*self._pulls.values(), return_exceptions=True)
        await self.client.close()

    async def leases_end(self, lease_ttl: float) -> None:
        """Wait for the end of leases that nobody extends; they last whole seconds."""
        await asyncio.sleep(max(1.0, lease_ttl) * self._second + _LOOK)

    async def now(self) -> float:
        return self._clock.now()

    async def submit(self, queue_name: str, body: bytes, score: float) -> None:
        del score
        await self.client.publish(self._topic(queue_name), [Message(data=body)])

    async def waiting(self, queue_name: str) -> Mapping[bytes, float]:
        del queue_name
        return {}

    async def results(self, result_queue: str) -> Sequence[bytes]:
        return [one.data for one in await self.received(result_queue)]

    async def received(self, topic: str) -> Sequence[Received]:
        """What was published to a topic of results, with its attributes."""
        if self._fake is not None:
            return self._fake.broker.published(self._topic(topic))
        while await self._look(topic):
            pass
        return self._seen[topic]

    async def _look(self, topic: str) -> bool:
        """Whether there was something new. A pull that has begun is never cut short."""
        pull = self._pulls.pop(topic, None) or asyncio.create_task(
            self.client.pull(self._subscription(topic), 1000)
        )
        done, _ = await asyncio.wait({pull}, timeout=_LOOK)
        if not done:
            self._pulls[topic] = pull
            return False
        found = pull.result()
        self._seen[topic] += found
        ack_ids = [one.ack_id for one in found]
        if ack_ids:
            await self.client.acknowledge(self._subscription(topic), ack_ids)
        return bool(found)

    async def result_lifetime(self, result_queue: str) -> float | None:
        del result_queue
        return None

    async def dead_letters(self) -> Sequence[DeadLetter]:
        return [_letter(one) for one in await self.received("dead-letter-list")]

    async def set_key(self, key: str, value: bytes) -> None:
        raise NotImplementedError

    async def get_key(self, key: str) -> bytes | None:
        raise NotImplementedError


def _letter(received: Received) -> DeadLetter:
    about = received.attributes
    return dead_letter.decode(
        dead_letter.encode(
            received.data,
            reason=about["reason"],
            queue_name=about["queue_name"],
            buried_at=float(about["buried_at"]),
            deliveries=int(about["deliveries"]),
        )
    )


@asynccontextmanager
async def pubsub_fake_probe() -> AsyncIterator[PubSubProbe]:
    """A fake server of the test's own, on which a second of a lease lasts a third of one."""
    async with PubSubFake(second=0.3) as fake, _opened(PubSubProbe(fake.host, fake)) as probe:
        yield probe


@asynccontextmanager
async def pubsub_emulator_probe() -> AsyncIterator[PubSubProbe]:
    """Google's emulator; the process starts one."""
    async with _opened(PubSubProbe(_emulator().host)) as probe:
        yield probe


@asynccontextmanager
async def _opened(probe: PubSubProbe) -> AsyncIterator[PubSubProbe]:
    await probe.open()
    try:
        yield probe
    finally:
        await probe.close()


@cache
def _emulator() -> PubSubEmulator:
    emulator = PubSubEmulator()
    atexit.register(emulator.stop)
    emulator.start()
    return emulator
