"""The daemon's parts together on Pub/Sub: each way a request can end, on a server with faults."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import grpc
from google.pubsub_v1 import types

from async_processor.clock import SystemClock
from async_processor.config.load import validated
from async_processor.daemon.build import Parts, build
from async_processor.daemon.daemon import Daemon
from async_processor.google_io.client import PubSubClient
from async_processor.google_io.values import Message
from async_processor.redis_io.connect import open_client
from async_processor.sim.pool import SimulatedPool
from async_processor.testing.eventually import eventually, until
from async_processor.testing.pubsub_broker import Subscription
from async_processor.testing.pubsub_fake import PubSubFake
from async_processor.testing.pubsub_probe import FastClock
from async_processor.testing.pubsub_scene import (
    DEAD,
    PROJECT,
    REQUESTS,
    REQUESTS_SUB,
    RESULTS,
    PubSubScene,
)
from async_processor.transport.base import Delivery
from async_processor.transport.google_pubsub import GooglePubSub
from async_processor.transport.settings import PubSubSettings
from async_processor.wire import result as results
from async_processor.wire.result import ErrorCode, Result


class Stage:
    def __init__(
        self, fake: PubSubFake, scene: PubSubScene, pool: SimulatedPool, parts: Parts
    ) -> None:
        self.fake = fake
        self.scene = scene
        self.pool = pool
        self.parts = parts

    @property
    def subscription(self) -> Subscription:
        return self.fake.broker.subscriptions[REQUESTS_SUB]

    async def submit(self, *ids: str, left: float = 600.0, **fields: Any) -> None:
        attributes = fields.pop("attributes", None)
        await self.scene.submit(
            *(request(request_id, left=left, **fields) for request_id in ids),
            attributes=attributes,
        )

    @property
    def answers(self) -> list[Result]:
        """Every result so far, doubles included."""
        return [results.decode(one.data) for one in self.fake.broker.published(RESULTS)]

    async def answered(self, count: int) -> Mapping[str, Result]:
        """Wait until so many different requests have a result."""
        await until(lambda: len({each.id for each in self.answers}) >= count)
        return {each.id: each for each in self.answers}

    def metric(self, name: str) -> float:
        text = self.parts.shared.metrics.exposition().decode()
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in text.splitlines()
            if line.startswith(f"llm_d_async_async_{name}{{")
        )


def _called(running: Stage, times: int) -> bool:
    return running.pool.ledger.total >= times


async def _says(running: Stage, words: str) -> bool:
    """Whether that is what holds the queue back, by `/status`."""
    (queue,) = (await running.parts.status.read())["queues"]
    return str(queue["why"]).startswith(words)


def request(request_id: str, *, left: float = 600.0, **fields: Any) -> dict[str, Any]:
    payload = {"user": request_id, "prompt": "hi", "max_tokens": 4}
    return {"id": request_id, "deadline": time.time() + left, "payload": payload, **fields}


@asynccontextmanager
async def stage(
    *,
    workers: int = 8,
    latency: float = 0.0,
    topic: Mapping[str, Any] | None = None,
    transport: Mapping[str, Any] | None = None,
    second: float = 1.0,
    exactly_once: bool = True,
    **others: Any,
) -> AsyncIterator[Stage]:
    """A running daemon, a fake Pub/Sub and a simulated pool."""
    async with PubSubFake(second=second) as fake, SimulatedPool(latency=latency) as pool:
        scene = PubSubScene(fake.host)
        await scene.open(exactly_once=exactly_once)
        settings = validated(
            {
                "transport": {
                    "type": "gcp-pubsub",
                    "project_id": PROJECT,
                    "result_topic_id": "results",
                    "lease_ttl": 10,
                    "topics": [
                        {
                            "subscriber_id": "requests-sub",
                            "igw_base_url": pool.url,
                            **(topic or {}),
                        }
                    ],
                    **(transport or {}),
                },
                "worker_pools": [{"id": "default", "workers": workers}],
                "retry": {"base_delay": 0.5, "max_delay": 1},
                "server": {"health_port": 0, "metrics_port": 0, "bind": "127.0.0.1"},
                "drain_timeout": 5,
                **others,
            },
            {},
        )
        parts = build(settings, transport=_transport(settings.transport, fake))
        running = asyncio.create_task(Daemon(parts).run())
        await until(lambda: running.done() or parts.shared.readiness.serving)
        try:
            yield Stage(fake, scene, pool, parts)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await scene.close()


def _transport(settings: Any, fake: PubSubFake) -> GooglePubSub:
    clock = FastClock(fake.broker.second)
    client = PubSubClient(clock, emulator=fake.host)
    topics = {topic.queue_name: topic.topic_id for topic in settings.topics}
    return GooglePubSub(settings, topics, client=client, clock=clock)


async def test_every_request_gets_its_answer() -> None:
    async with stage() as running:
        await running.submit(*(f"r-{number}" for number in range(200)))
        found = await running.answered(200)
        assert all(each.status_code == 200 for each in found.values())
        assert len(running.answers) == 200
        assert not running.pool.ledger.repeated()
        await until(lambda: not running.subscription.undelivered)
        await until(lambda: running.metric("successful_requests_total") == 200)
        assert running.metric("request_total") == 200
        assert running.metric("message_latency_time_millis_count") == 200


async def test_attributes_are_metadata_and_the_route_of_results() -> None:
    async with stage() as running:
        await running.submit(
            "r-1",
            metadata={"userid": "team-a"},
            attributes={"userid": "nobody", "team": "blue", "result_route": "mine"},
        )
        found = (await running.answered(1))["r-1"]
        assert found.metadata == {"userid": "team-a", "team": "blue", "result_route": "mine"}
        (published,) = running.fake.broker.published(RESULTS)
        assert published.attributes == {"id": "r-1", "status": "200", "result_route": "mine"}


async def test_a_message_names_the_topic_of_its_result() -> None:
    async with stage() as running:
        other = f"projects/{PROJECT}/topics/others-results"
        await running.scene.client.create_topic(other)
        await running.submit("theirs", result_queue_name="others-results")
        await until(lambda: len(running.fake.broker.topics[other]) == 1)
        for lost in ("no-such-topic", "requests", "request-result:r-1:t"):
            await running.submit(f"to-{lost}", result_queue_name=lost)
        found = await running.answered(3)
        assert {each.status_code for each in found.values()} == {200}
        await until(lambda: not running.subscription.undelivered)
        assert len(running.fake.broker.topics[REQUESTS]) == 4


async def test_what_fails_is_retried_with_its_count_and_the_latency_counts_once() -> None:
    async with stage() as running:
        running.pool.faults.set(error=1, error_status=503)
        await running.submit("r-1", attributes={"team": "blue"})
        await until(lambda: running.pool.ledger.total >= 2)
        running.pool.faults.clear()
        found = (await running.answered(1))["r-1"]
        assert found.status_code == 200
        assert found.attempts >= 3
        assert found.metadata == {"team": "blue"}
        assert running.metric("request_total") == 1
        assert running.metric("request_retries_total") == found.attempts - 1
        assert running.metric("message_latency_time_millis_count") == 1
        await until(lambda: not running.subscription.undelivered)


async def test_a_retry_does_not_run_in_other_subscriptions_of_its_topic() -> None:
    async with stage() as running:
        sibling = types.Subscription(
            name=f"projects/{PROJECT}/subscriptions/sibling", topic=REQUESTS
        )
        copies = running.fake.broker.create_subscription(sibling)
        running.pool.faults.set(error=1, error_status=503)
        await running.submit("r-1")
        await until(lambda: running.pool.ledger.total >= 2)
        running.pool.faults.clear()
        await running.answered(1)
        clock = SystemClock()
        client = PubSubClient(clock, emulator=running.fake.host)
        settings = running.parts.topology.settings.transport
        assert isinstance(settings, PubSubSettings)
        other = GooglePubSub(settings, {"sibling": ""}, client=client, clock=clock)
        await other.start()
        try:
            claimed: list[Delivery] = []
            while copies.undelivered > len(claimed):
                claimed += await other.claim("sibling", 10, suspects=True)
                await other.extend(claimed)
        finally:
            await other.stop()
        assert len(claimed) == 1


async def test_unreadable_messages_are_buried_as_they_came() -> None:
    async with stage() as running:
        bodies = [b"null", b"[]", b"\xff\xfe", b'{"id": "bad", "deadline": "soon"}']
        await running.scene.client.publish(REQUESTS, [Message(data=each) for each in bodies])
        await running.submit("good")
        found = await running.answered(2)
        assert found["good"].status_code == 200
        assert found["bad"].error_code is ErrorCode.INVALID_REQUEST
        await until(lambda: not running.subscription.undelivered)
        letters = running.fake.broker.published(DEAD)
        assert {each.data for each in letters} == set(bodies)
        assert all(each.attributes["reason"] for each in letters)


async def test_what_kills_its_process_again_and_again_is_answered_and_buried() -> None:
    async with stage() as running:
        killer = json.dumps(request("killer")).encode()
        running.fake.broker.publish(REQUESTS, types.PubsubMessage(data=killer))
        running.subscription.waiting[-1].attempt = 6
        found = (await running.answered(1))["killer"]
        assert found.error_code is ErrorCode.MAX_DELIVERIES
        assert running.pool.ledger.total == 0
        await until(lambda: len(running.fake.broker.published(DEAD)) == 1)


async def test_a_result_too_large_for_pubsub_says_so() -> None:
    async with stage() as running:
        large = "x" * 9_999_000
        await running.submit("r-1", metadata={"large": large})
        found = (await running.answered(1))["r-1"]
        assert found.error_code is ErrorCode.INFERENCE_ERROR
        assert "larger than Pub/Sub takes" in str(found.error_message)


async def test_an_expired_request_is_answered_when_it_comes() -> None:
    async with stage() as running:
        await running.submit("late", left=-1)
        found = (await running.answered(1))["late"]
        assert found.error_code is ErrorCode.DEADLINE_EXCEEDED
        assert running.pool.ledger.total == 0


async def test_a_refusing_gate_gives_back_without_eating_deliveries() -> None:
    gate = {"type": "local-max-concurrency", "limit": 2}
    async with stage(workers=8, latency=0.05, topic={"gate": gate}) as running:
        await running.submit(*(f"r-{number}" for number in range(30)))
        found = await running.answered(30)
        assert {each.status_code for each in found.values()} == {200}
        assert len(running.answers) == 30
        assert not running.pool.ledger.repeated()
        assert running.metric("request_total") == 30


async def test_every_fault_of_the_service_is_lived_through() -> None:
    """Answers that do not come, before and after they took effect, and pulls that break."""
    async with stage(workers=8, latency=0.02, second=0.3) as running:
        fake = running.fake
        await running.submit(*(f"r-{number}" for number in range(60)))
        for method in ("Pull", "Acknowledge", "ModifyAckDeadline"):
            fake.fail(method, times=3)
            fake.fail(method, after=True, times=2)
        fake.fail("Publish", grpc.StatusCode.UNAVAILABLE, times=3)
        for _ in range(3):
            await until(lambda: fake.calls["Pull"] > 0)
            fake.cut_pulls()
        found = await running.answered(60)
        assert {each.status_code for each in found.values()} == {200}
        await until(lambda: not running.subscription.undelivered)
        # A publish whose confirmation is lost is the one thing that is repeated.
        assert len({each.id for each in running.answers}) == 60


async def test_the_service_may_go_away_and_come_back() -> None:
    async with stage(workers=4, latency=0.2) as running:
        await running.submit(*(f"r-{number}" for number in range(12)))
        await until(lambda: running.pool.ledger.total >= 2)
        await running.fake.stop()
        calls = running.pool.ledger.total
        await until(lambda: running.pool.pods[0].load.running == 0)
        assert running.pool.ledger.total <= calls + 4
        await eventually(lambda: _says(running, "the broker cannot be used"))
        await running.fake.start()
        found = await running.answered(12)
        assert {each.status_code for each in found.values()} == {200}
        assert len(running.answers) == 12


async def test_overlapping_deliveries_do_not_settle_each_other() -> None:
    """Without exactly-once a message may come twice at once: each delivery ends by itself."""
    async with stage(exactly_once=False, latency=0.1) as running:
        running.subscription.twice = 5
        await running.submit(*(f"r-{number}" for number in range(10)))
        await running.answered(10)
        await until(lambda: not running.subscription.undelivered)
        await until(lambda: len(running.fake.broker.topics[RESULTS]) == 15)


async def test_a_delivery_whose_lease_was_taken_away_writes_nothing() -> None:
    """With exactly-once the service says whose the message is, and one result stands."""
    async with stage(workers=2) as running:
        running.pool.faults.set(hang=1)
        await running.submit("r-1")
        await until(lambda: running.pool.ledger.total == 1)
        running.pool.faults.clear()
        running.fake.broker.redeliver(running.subscription)
        await running.answered(1)
        await until(lambda: not running.subscription.undelivered)
        await until(lambda: not len(running.parts.shared.holdings))
        assert running.metric("leases_lost_total") == 1
        assert len(running.fake.broker.topics[RESULTS]) == 1


async def test_a_closed_gate_holds_nothing_and_asks_for_nothing() -> None:
    closed = {"type": "endpoint-scrape", "url": "http://127.0.0.1:9/m", "metric": "nobody"}
    async with stage(topic={"gate": closed}) as running:
        await running.submit(*(f"r-{number}" for number in range(20)))
        await until(lambda: running.metric("gate_decisions_total") >= 3)
        await until(lambda: not running.subscription.leases)
        pulls = running.subscription.pulls
        decisions = running.metric("gate_decisions_total")
        await until(lambda: running.metric("gate_decisions_total") >= decisions + 2)
        assert running.subscription.pulls == pulls
        assert not running.subscription.leases
        assert len(running.subscription.delivered) <= 1
        assert running.pool.ledger.total == 0


async def test_a_gate_that_opens_and_closes_loses_nothing_and_counts_no_delivery(
    redis_url: str,
) -> None:
    gate = {"type": "redis", "url": redis_url}
    client = open_client(redis_url)
    async with stage(workers=4, latency=0.05, topic={"gate": gate}) as running:
        await running.submit(*(f"r-{number}" for number in range(80)))
        for turn in range(4):
            await client.execute("SET", "dispatch-gate-budget", "1")
            enough = 12 * (turn + 1)
            await until(partial(_called, running, enough))
            await client.execute("SET", "dispatch-gate-budget", "0")
            await until(lambda: not running.subscription.leases)
        await client.execute("SET", "dispatch-gate-budget", "1")
        found = await running.answered(80)
        assert {each.status_code for each in found.values()} == {200}
        assert len(running.answers) == 80
        assert not running.pool.ledger.repeated()
        assert running.metric("request_total") == 80
    await client.close()


async def test_a_drain_gives_everything_back_at_once() -> None:
    async with stage(workers=2, latency=60, drain_timeout=0) as running:
        await running.submit(*(f"r-{number}" for number in range(4)))
        await until(lambda: running.pool.ledger.total == 2)
    assert len(running.subscription.waiting) >= 2
    assert not running.subscription.leases
