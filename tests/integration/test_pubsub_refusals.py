"""What Pub/Sub refuses now and may allow later: nothing is lost, doubled, or another's trouble."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from google.pubsub_v1 import types

from async_processor.clock import Clock
from async_processor.errors import BrokerUnavailable
from async_processor.google_io.client import PULL_TIMEOUT, PubSubClient
from async_processor.google_io.values import Received, Verdict
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
from async_processor.testing.stage import claim_one
from async_processor.transport.base import Bury, Post, Retry, Settlement
from async_processor.transport.google_pubsub import GooglePubSub
from async_processor.transport.settings import PubSubSettings
from async_processor.wire.result import Result

QUEUE = "requests-sub"
DENIED = grpc.StatusCode.PERMISSION_DENIED
UNKNOWN = grpc.StatusCode.UNAUTHENTICATED


def full(kind: str, name: str) -> str:
    return f"projects/{PROJECT}/{kind}/{name}"


@asynccontextmanager
async def faked(*, second: float = 1.0, **settings: Any) -> AsyncIterator[PubSubFake]:
    async with PubSubFake(second=second, long_poll=0.5) as fake:
        scene = PubSubScene(fake.host)
        await scene.open(**settings)
        await scene.close()
        yield fake


class LateReader(PubSubClient):
    """Its process is frozen while an answer comes: `late` names the call, once, and the leases of
    `fake` are over when the answer is read."""

    def __init__(self, fake: PubSubFake, clock: Clock, late: str) -> None:
        super().__init__(clock, emulator=fake.host)
        self._fake = fake
        self._late = late

    async def pull(
        self, subscription: str, limit: int, patience: float = PULL_TIMEOUT
    ) -> list[Received]:
        received = await super().pull(subscription, limit, patience)
        if received:
            await self._thaw("pull")
        return received

    async def modify(
        self, subscription: str, ack_ids: Sequence[str], seconds: int
    ) -> list[Verdict]:
        verdicts = await super().modify(subscription, ack_ids, seconds)
        await self._thaw("modify")
        return verdicts

    async def _thaw(self, call: str) -> None:
        if self._late == call:
            self._late = ""
            await until(lambda: not subscription(self._fake).leases)


@asynccontextmanager
async def transport(
    fake: PubSubFake, *others: str, lease_ttl: float = 60, late: str = ""
) -> AsyncIterator[GooglePubSub]:
    clock = FastClock(fake.broker.second)
    client = LateReader(fake, clock, late)
    settings = PubSubSettings(project_id=PROJECT, result_topic_id="results", lease_ttl=lease_ttl)
    topics = dict.fromkeys((QUEUE, *others), "")
    started = GooglePubSub(settings, topics, client=client, clock=clock)
    await started.start()
    try:
        yield started
    finally:
        await started.stop()


def subscription(fake: PubSubFake) -> Subscription:
    return fake.broker.subscriptions[REQUESTS_SUB]


def publish(
    fake: PubSubFake,
    request_id: str,
    *,
    topic: str = REQUESTS,
    left: float = 600.0,
    attributes: Mapping[str, str] | None = None,
) -> None:
    request: dict[str, Any] = {"id": request_id, "deadline": time.time() + left, "payload": {}}
    data = json.dumps(request).encode()
    fake.broker.publish(topic, types.PubsubMessage(data=data, attributes=attributes or {}))


POST = Post(result=Result(id="r-1", status_code=200, payload="{}"), result_queue="results")


@pytest.mark.parametrize("code", [DENIED, UNKNOWN])
async def test_a_refused_acknowledgement_is_tried_again_and_the_result_stands_once(
    code: grpc.StatusCode,
) -> None:
    async with faked() as fake, transport(fake) as started:
        publish(fake, "r-1")
        delivery = await claim_one(started, QUEUE)
        fake.fail("Acknowledge", code, times=2)
        assert await started.settle(delivery, POST) is Settlement.DONE
        assert len(fake.broker.topics[RESULTS]) == 1
        assert not subscription(fake).undelivered


async def test_an_acknowledgement_that_is_refused_for_good_is_given_up_with_the_lease() -> None:
    async with faked(second=0.3) as fake, transport(fake, lease_ttl=10) as started:
        publish(fake, "r-1")
        delivery = await claim_one(started, QUEUE)
        fake.fail("Acknowledge", DENIED, times=1000)
        assert await asyncio.wait_for(started.settle(delivery, POST), 30) is Settlement.DONE
        assert len(fake.broker.topics[RESULTS]) == 1


async def test_a_stored_copy_is_not_doubled_when_its_old_self_cannot_be_acknowledged() -> None:
    async with faked() as fake, transport(fake) as started:
        publish(fake, "r-1")
        delivery = await claim_one(started, QUEUE)
        fake.fail("Acknowledge", DENIED)
        retry = Retry(body=delivery.body, due_at=time.time())
        assert await started.settle(delivery, retry) is Settlement.DONE
        assert len(fake.broker.topics[REQUESTS]) == 2
        await claim_one(started, QUEUE)
        assert subscription(fake).undelivered == 1


@pytest.mark.parametrize("code", [DENIED, UNKNOWN])
async def test_a_refused_renewal_is_neither_fatal_nor_a_lost_lease(code: grpc.StatusCode) -> None:
    async with faked() as fake, transport(fake, lease_ttl=10) as started:
        publish(fake, "r-1")
        delivery = await claim_one(started, QUEUE)
        fake.fail("ModifyAckDeadline", code)
        assert not await started.extend([delivery])
        assert not await started.extend([delivery])
        assert await started.settle(delivery, POST) is Settlement.DONE


async def test_a_subscription_that_is_gone_costs_the_others_no_lease() -> None:
    async with faked(second=0.1, ack_deadline=60, exactly_once=False) as fake:
        second = types.Subscription(
            name=full("subscriptions", "second"), topic=REQUESTS, ack_deadline_seconds=10
        )
        fake.broker.create_subscription(second)
        async with transport(fake, "second") as started:
            publish(fake, "r-1")
            healthy = await claim_one(started, QUEUE)
            other = await claim_one(started, "second")
            del fake.broker.subscriptions[second.name]

            async def other_is_lost() -> bool:
                lost = await started.extend([healthy, other])
                assert healthy.token not in lost
                return other.token in lost

            await eventually(other_is_lost)
            assert await started.settle(healthy, POST) is Settlement.DONE


async def test_a_first_renewal_that_fails_is_repeated_before_the_short_lease_ends() -> None:
    """The subscription leases for ten seconds, and who keeps leases of a minute comes after 20."""
    async with faked() as fake, transport(fake) as started:
        publish(fake, "r-1")
        fake.fail("ModifyAckDeadline")
        delivery = await claim_one(started, QUEUE)
        await until(lambda: fake.calls["ModifyAckDeadline"] >= 2)
        assert not await started.extend([delivery])
        assert len(subscription(fake).delivered) == 1


@pytest.mark.parametrize("code", [DENIED, grpc.StatusCode.NOT_FOUND])
async def test_a_dead_letter_that_is_refused_keeps_its_message(code: grpc.StatusCode) -> None:
    async with faked() as fake, transport(fake) as started:
        publish(fake, "r-1")
        delivery = await claim_one(started, QUEUE)
        fake.fail("Publish", code)
        assert await started.settle(delivery, Bury(reason="x")) is Settlement.DONE
        assert len(fake.broker.topics[DEAD]) == 1
        assert not subscription(fake).undelivered


async def test_a_dead_letter_topic_that_is_gone_holds_no_slot_for_ever_and_loses_nothing() -> None:
    async with faked(second=0.1) as fake, transport(fake) as started:
        letters = fake.broker.topics.pop(DEAD)
        publish(fake, "r-1")
        bury = Bury(reason="x", post=POST)
        delivery = await claim_one(started, QUEUE)
        assert await asyncio.wait_for(started.settle(delivery, bury), 30) is Settlement.GONE
        assert not fake.broker.topics[RESULTS]
        fake.broker.topics[DEAD] = letters
        again = await claim_one(started, QUEUE)
        assert again.deliveries == 0
        assert await started.settle(again, bury) is Settlement.DONE
        assert (len(letters), len(fake.broker.topics[RESULTS])) == (1, 1)
        assert not subscription(fake).undelivered


async def test_a_dead_letter_that_pubsub_cannot_take_ends_nevertheless() -> None:
    async with faked() as fake, transport(fake) as started:
        publish(fake, "r-1")
        delivery = await claim_one(started, QUEUE)
        fake.fail("Publish", grpc.StatusCode.INVALID_ARGUMENT, times=2)
        assert await started.settle(delivery, Bury(reason="x", post=POST)) is Settlement.DONE
        assert len(fake.broker.topics[RESULTS]) == 1
        assert not subscription(fake).undelivered


async def test_a_dead_letter_with_too_many_attributes_goes_without_its_senders() -> None:
    async with faked() as fake, transport(fake) as started:
        publish(fake, "r-1", attributes={"team": "blue"})
        delivery = await claim_one(started, QUEUE)
        fake.fail("Publish", grpc.StatusCode.INVALID_ARGUMENT)
        assert await started.settle(delivery, Bury(reason="x")) is Settlement.DONE
        (letter,) = fake.broker.published(DEAD)
        assert (letter.data, letter.attributes["reason"]) == (delivery.body, "x")
        assert "team" not in letter.attributes


async def test_nothing_is_written_when_a_lease_ends_that_may_not_be_renewed() -> None:
    async with faked(second=0.3) as fake, transport(fake, lease_ttl=10) as started:
        publish(fake, "r-1")
        delivery = await claim_one(started, QUEUE)
        fake.fail("ModifyAckDeadline", DENIED, times=1000)
        await until(lambda: not subscription(fake).leases)
        assert await started.settle(delivery, POST) is Settlement.GONE
        assert not fake.broker.topics[RESULTS]
        assert subscription(fake).undelivered == 1


@pytest.mark.parametrize("late", ["pull", "modify"])
async def test_who_reads_late_that_it_has_a_lease_writes_nothing(late: str) -> None:
    """Neither the pull of a frozen process nor its renewal says that the lease still stands."""
    async with faked(second=0.2) as fake, transport(fake, lease_ttl=10, late=late) as started:
        publish(fake, "r-1")
        delivery = await claim_one(started, QUEUE)
        if late == "modify":
            to_be_renewed = started.clock.monotonic() + 8
            await until(lambda: started.clock.monotonic() >= to_be_renewed)
        assert await started.settle(delivery, POST) is Settlement.GONE
        assert not fake.broker.topics[RESULTS]
        again = await claim_one(started, QUEUE)
        assert await started.settle(again, POST) is Settlement.DONE


async def test_without_exactly_once_a_renewal_that_is_read_late_is_none() -> None:
    """Without exactly-once delivery a lease that is over can be renewed, as it seems."""
    async with (
        faked(second=0.2, exactly_once=False) as fake,
        transport(fake, lease_ttl=10, late="modify") as started,
    ):
        publish(fake, "r-1")
        delivery = await claim_one(started, QUEUE)
        await started.extend([delivery])
        assert await started.settle(delivery, POST) is Settlement.GONE
        assert not fake.broker.topics[RESULTS]


async def test_a_result_topic_that_is_away_repeats_no_dead_letter() -> None:
    async with faked() as fake, transport(fake) as started:
        publish(fake, "r-1")
        delivery = await claim_one(started, QUEUE)
        results = fake.broker.topics.pop(RESULTS)
        settling = asyncio.create_task(started.settle(delivery, Bury(reason="x", post=POST)))
        await until(lambda: fake.calls["Publish"] >= 4)
        with pytest.raises(BrokerUnavailable, match="Topic not found"):
            await started.ping()
        fake.broker.topics[RESULTS] = results
        assert await settling is Settlement.DONE
        await started.ping()
        assert (len(fake.broker.topics[DEAD]), len(results)) == (1, 1)


async def test_each_subscription_has_its_own_dead_letter_topic() -> None:
    async with faked() as fake:
        topic, dead = full("topics", "others"), full("topics", "others-dead")
        fake.broker.create_topic(topic)
        fake.broker.create_topic(dead)
        policy = types.DeadLetterPolicy(dead_letter_topic=dead, max_delivery_attempts=10)
        fake.broker.create_subscription(
            types.Subscription(
                name=full("subscriptions", "others-sub"),
                topic=topic,
                ack_deadline_seconds=60,
                dead_letter_policy=policy,
            )
        )
        async with transport(fake, "others-sub") as started:
            publish(fake, "theirs", topic=topic)
            delivery = await claim_one(started, "others-sub")
            await started.settle(delivery, Bury(reason="x"))
        assert len(fake.broker.topics[dead]) == 1
        assert not fake.broker.topics[DEAD]


async def test_a_mark_puts_nothing_off_beyond_its_deadline() -> None:
    async with faked() as fake, transport(fake) as started:
        publish(fake, "r-1", left=2.0, attributes={"async_processor_due": "1e12"})
        assert (await claim_one(started, QUEUE)).request_id == "r-1"


async def test_a_copy_is_known_by_its_projects_number_too_and_a_foreign_one_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with faked() as fake, transport(fake) as started:
        mark = "async_processor_subscription"
        publish(fake, "other", attributes={mark: full("subscriptions", "sibling")})
        publish(fake, "own", attributes={mark: "projects/4711/subscriptions/requests-sub"})
        assert (await claim_one(started, QUEUE)).request_id == "own"
        await until(lambda: subscription(fake).undelivered == 1)
    assert "copy_of_another_subscription" in capsys.readouterr().out
