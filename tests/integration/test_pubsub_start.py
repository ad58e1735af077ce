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
from async_processor.transport.google_pubsub import GooglePubSub, subscriptions
from async_processor.transport.settings import PubSubSettings

QUEUE = "requests-sub"


@pytest.fixture
async def fake() -> AsyncIterator[PubSubFake]:
    async with PubSubFake(long_poll=0.5) as fake:
        scene = PubSubScene(fake.host)
        await scene.open()
        await scene.close()
        yield fake


def transport(
    fake: PubSubFake, queue: str = QUEUE, topic: str = "", **settings: Any
) -> GooglePubSub:
    clock = SystemClock()
    client = PubSubClient(clock, emulator=fake.host)
    known = PubSubSettings(project_id=PROJECT, result_topic_id="results", **settings)
    return GooglePubSub(known, {queue: topic}, client=client, clock=clock)


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


async def test_a_topic_that_is_not_the_subscriptions_is_refused(fake: PubSubFake) -> None:
    """A retry published there would never come back."""
    fake.broker.create_topic(f"projects/{PROJECT}/topics/other")
    refused = transport(fake, topic="other")
    said = f"topic_id: .*/topics/other is not the topic of .*: it must be {REQUESTS}, or left out"
    with pytest.raises(BrokerRefused, match=said):
        await refused.start()
    await refused.stop()
    right = transport(fake, topic="requests")
    await right.start()
    await right.stop()


async def test_nothing_is_stored_for_a_subscription_whose_topic_is_deleted(
    fake: PubSubFake, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the configuration names a topic: what is published there does not come."""
    fake.broker.publish(REQUESTS, types.PubsubMessage(data=b'{"id": "r-1"}'))
    subscription(fake).settings.topic = "_deleted-topic_"
    started = transport(fake, topic="requests")
    await started.start()
    delivery = await claim_one(started, QUEUE)
    retry = Retry(body=b"rewritten", due_at=started.clock.now())
    assert await started.settle(delivery, retry) is Settlement.DONE
    assert (await claim_one(started, QUEUE)).body == b'{"id": "r-1"}'
    assert len(fake.broker.topics[REQUESTS]) == 1
    await started.stop()
    assert "its topic is deleted" in capsys.readouterr().out


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
    assert "dead_letter_topic_id" not in said
    assert "without exactly-once delivery" in said
    assert "before max_deliveries (5) can answer them: set it above 6" in said


@pytest.mark.parametrize("named", [False, True])
async def test_a_place_for_dead_letters_is_missed_where_there_is_none(
    fake: PubSubFake, capsys: pytest.CaptureFixture[str], named: bool
) -> None:
    subscription(fake).settings.dead_letter_policy = types.DeadLetterPolicy()
    started = transport(fake, dead_letter_topic_id="dead" if named else "")
    await started.start()
    await started.stop()
    assert ("set dead_letter_topic_id" in capsys.readouterr().out) is not named


async def test_a_start_waits_for_a_service_that_is_away(fake: PubSubFake) -> None:
    fake.fail("GetSubscription", times=3)
    fake.fail("GetSubscription", grpc.StatusCode.UNAUTHENTICATED)
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


@pytest.mark.parametrize("refused", ["GetSubscription", "Publish"])
async def test_retries_that_cannot_be_stored_do_not_count_as_lost_leases(
    fake: PubSubFake, refused: str
) -> None:
    fake.fail(refused, grpc.StatusCode.PERMISSION_DENIED, times=1000)
    started = transport(fake)
    await started.start()
    fake.broker.publish(REQUESTS, types.PubsubMessage(data=b'{"id": "r-1"}'))
    for _ in range(8):
        delivery = await claim_one(started, QUEUE)
        assert delivery.deliveries == 0
        await started.settle(delivery, Retry(body=b"rewritten", due_at=started.clock.now()))
    await started.stop()


async def test_what_could_not_be_seen_at_first_is_looked_at_again(
    fake: PubSubFake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "LOOK_AGAIN", 0.0)
    fake.fail("GetSubscription", grpc.StatusCode.PERMISSION_DENIED, times=2)
    started = transport(fake)
    await started.start()

    async def seen() -> bool:
        await started.wait_for_work(QUEUE, 0.1)
        return fake.calls["GetSubscription"] == 3

    await eventually(seen)
    fake.broker.publish(REQUESTS, types.PubsubMessage(data=b'{"id": "r-1"}'))
    delivery = await claim_one(started, QUEUE)
    await started.settle(delivery, Retry(body=b"rewritten", due_at=started.clock.now()))
    assert (await claim_one(started, QUEUE)).body == b"rewritten"
    await started.stop()


async def test_who_may_pull_nothing_is_not_ready_until_it_may(fake: PubSubFake) -> None:
    started = transport(fake)
    await started.start()
    fake.fail("Pull", grpc.StatusCode.PERMISSION_DENIED)
    with pytest.raises(BrokerUnavailable, match="told to fail"):
        await started.claim(QUEUE, 1, suspects=True)
    with pytest.raises(BrokerUnavailable, match="told to fail"):
        await started.ping()
    fake.broker.publish(REQUESTS, types.PubsubMessage(data=b'{"id": "r-1"}'))
    await claim_one(started, QUEUE)
    await started.ping()
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
    await asyncio.wait_for(started.ping(), 60)
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
