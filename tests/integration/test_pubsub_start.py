"""Pub/Sub at the start and under its probes: what is refused, what is told, what is lived with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.pubsub_v1 import types

from async_processor.clock import SystemClock
from async_processor.errors import BrokerRefused, BrokerUnavailable
from async_processor.google_io.client import PubSubClient
from async_processor.testing.eventually import eventually
from async_processor.testing.pubsub_broker import Subscription
from async_processor.testing.pubsub_fake import PubSubFake
from async_processor.testing.pubsub_scene import (
    PROJECT,
    REQUESTS,
    REQUESTS_SUB,
    RESULTS,
    PubSubScene,
)
from async_processor.testing.stage import claim_one
from async_processor.transport.base import Retry, Settlement
from async_processor.transport.google_pubsub import GooglePubSub
from async_processor.transport.settings import PubSubSettings

QUEUE = "requests-sub"


@pytest.fixture
async def fake() -> AsyncIterator[PubSubFake]:
    async with PubSubFake(long_poll=0.5) as fake:
        scene = PubSubScene(fake.host)
        await scene.open()
        await scene.close()
        yield fake


def transport(fake: PubSubFake, queue: str = QUEUE, **settings: Any) -> GooglePubSub:
    clock = SystemClock()
    client = PubSubClient(clock, emulator=fake.host)
    known = PubSubSettings(project_id=PROJECT, result_topic_id="results", **settings)
    return GooglePubSub(known, {queue: ""}, client=client, clock=clock)


def subscription(fake: PubSubFake) -> Subscription:
    return fake.broker.subscriptions[REQUESTS_SUB]


async def test_a_missing_subscription_is_refused_with_the_way_to_make_it(fake: PubSubFake) -> None:
    refused = transport(fake, "no-such-sub")
    with pytest.raises(BrokerRefused, match="does not exist: async-processor pubsub setup"):
        await refused.start()
    await refused.stop()


async def test_a_subscription_to_the_result_topic_is_refused(fake: PubSubFake) -> None:
    subscription(fake).settings.topic = RESULTS
    refused = transport(fake)
    with pytest.raises(BrokerRefused, match="every result would come back as a request"):
        await refused.start()
    await refused.stop()


async def test_a_push_subscription_is_refused(fake: PubSubFake) -> None:
    subscription(fake).settings.push_config = types.PushConfig(push_endpoint="https://there")
    refused = transport(fake)
    with pytest.raises(BrokerRefused, match="must be a pull subscription"):
        await refused.start()
    await refused.stop()


async def test_what_is_weaker_than_it_could_be_is_said(
    fake: PubSubFake, capsys: pytest.CaptureFixture[str]
) -> None:
    subscription(fake).settings.enable_exactly_once_delivery = False
    subscription(fake).settings.dead_letter_policy.max_delivery_attempts = 5
    started = transport(fake)
    await started.start()
    await started.stop()
    said = capsys.readouterr().out
    assert "without exactly-once delivery" in said
    assert "before max_deliveries (5) can answer them: set it above 6" in said


async def test_a_start_waits_for_a_service_that_is_away(fake: PubSubFake) -> None:
    fake.fail("GetSubscription", times=3)
    started = transport(fake)
    await started.start()
    await started.ping()
    await started.stop()


async def test_who_may_not_look_may_still_work(fake: PubSubFake) -> None:
    """Without the right to see the subscription its topic is unknown: a retry comes back as it
    was, after its pause."""
    denied = grpc.StatusCode.PERMISSION_DENIED
    fake.fail("GetSubscription", denied, times=1000)
    started = transport(fake)
    await started.start()
    fake.broker.publish(REQUESTS, types.PubsubMessage(data=b'{"id": "r-1"}'))
    delivery = await claim_one(started, QUEUE)
    retry = Retry(body=b"rewritten", due_at=started.clock.now() + 0.5)
    assert await started.settle(delivery, retry) is Settlement.DONE
    assert (await claim_one(started, QUEUE)).body == b'{"id": "r-1"}'
    assert len(fake.broker.topics[REQUESTS]) == 1
    await started.stop()


async def test_who_may_not_publish_loses_nothing(fake: PubSubFake) -> None:
    started = transport(fake)
    await started.start()
    fake.broker.publish(REQUESTS, types.PubsubMessage(data=b'{"id": "r-1"}'))
    delivery = await claim_one(started, QUEUE)
    fake.fail("Publish", grpc.StatusCode.PERMISSION_DENIED)
    retry = Retry(body=b"rewritten", due_at=started.clock.now() + 0.5)
    assert await started.settle(delivery, retry) is Settlement.DONE
    assert (await claim_one(started, QUEUE)).body == b'{"id": "r-1"}'
    await started.stop()


async def test_a_ping_is_answered_by_a_working_pull_or_a_look(fake: PubSubFake) -> None:
    started = transport(fake)
    with pytest.raises(BrokerUnavailable, match="not connected"):
        await started.ping()
    await started.start()
    looks = fake.calls["GetSubscription"]
    await started.ping()
    assert fake.calls["GetSubscription"] == looks, "it has just been heard of"
    fake.fail("GetSubscription", grpc.StatusCode.PERMISSION_DENIED, times=1000)
    await asyncio.wait_for(started.ping(), 10)
    await fake.stop()

    async def unreachable() -> bool:
        try:
            await started.ping()
        except BrokerUnavailable:
            return True
        return False

    await eventually(unreachable)
    await fake.start()
    await started.stop()
