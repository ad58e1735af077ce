"""Contract: what a claim hands out, in which order, to whom, and what it never hands out."""

from __future__ import annotations

import asyncio
import random

import pytest

from async_processor.testing.eventually import eventually
from async_processor.testing.messages import DEADLINE, bare_message
from async_processor.testing.probe import BrokerProbe, Capability
from async_processor.testing.stage import QUEUE, answer, claim, claim_one, ids, lose, submit
from async_processor.transport.base import SUSPECT_AFTER, Bury, Delivery, Settlement, Transport
from async_processor.wire.envelope import Envelope, InvalidMessage, score


@pytest.mark.needs(Capability.ORDER)
async def test_earliest_deadline_leaves_first(probe: BrokerProbe, replica: Transport) -> None:
    for request_id, deadline in (("c", 300), ("a", 100), ("b", 200)):
        await submit(probe, request_id, deadline=DEADLINE + deadline)
    assert ids(await replica.claim(QUEUE, 10, suspects=False)) == ["a", "b", "c"]


@pytest.mark.needs(Capability.ORDER, Capability.SCORES)
async def test_equal_deadlines_leave_in_order_of_arrival(
    probe: BrokerProbe, replica: Transport
) -> None:
    sequence = list(range(1, 13))
    for seq in random.Random(7).sample(sequence, len(sequence)):
        await submit(probe, f"r-{seq}", seq=seq)
    claimed = ids(await replica.claim(QUEUE, 20, suspects=False))
    assert claimed == [f"r-{seq}" for seq in sequence]


@pytest.mark.needs(Capability.PROMPT)
async def test_a_claim_sees_at_once_what_waits(probe: BrokerProbe, replica: Transport) -> None:
    for number in range(5):
        await submit(probe, f"r-{number}", seq=number + 1)
    assert len(await replica.claim(QUEUE, 10, suspects=False)) == 5


async def test_a_claim_takes_no_more_than_its_limit(probe: BrokerProbe, replica: Transport) -> None:
    for number in range(5):
        await submit(probe, f"r-{number}", seq=number + 1)
    first = await claim(replica, 2)
    rest = await claim(replica, 3)
    assert len(first) == 2
    assert sorted(ids([*first, *rest])) == [f"r-{number}" for number in range(5)]
    assert not await replica.claim(QUEUE, 10, suspects=False)


async def test_a_delivery_says_where_it_comes_from(probe: BrokerProbe, replica: Transport) -> None:
    body = await submit(probe, "r-1", token="t-1", seq=3)
    delivery = await claim_one(replica)
    assert delivery.queue_name == QUEUE
    assert delivery.body == body
    assert delivery.deliveries == 0
    assert delivery.token
    assert abs(delivery.claimed_at - await probe.now()) < 10
    assert isinstance(delivery.message, Envelope)
    assert (delivery.request_id, delivery.request_token) == ("r-1", "t-1")


@pytest.mark.needs(Capability.SCORES)
async def test_a_delivery_keeps_its_score(probe: BrokerProbe, replica: Transport) -> None:
    await submit(probe, "r-1", seq=3)
    assert (await claim_one(replica)).score == score(DEADLINE, 3)


async def test_a_claim_keeps_the_clock_to_the_brokers_time(
    probe: BrokerProbe, replica: Transport
) -> None:
    await submit(probe, "r-1")
    await claim_one(replica)
    assert abs(replica.clock.now() - await probe.now()) < 5


async def test_a_leased_message_is_nobody_elses(probe: BrokerProbe, replica: Transport) -> None:
    await submit(probe, "r-1")
    await claim_one(replica)
    other = await probe.replica()
    assert not await other.claim(QUEUE, 10, suspects=True)
    assert not await replica.claim(QUEUE, 10, suspects=True)
    assert await other.reclaim(QUEUE) == 0


async def test_replicas_that_claim_at_once_share_without_overlap(
    probe: BrokerProbe, replica: Transport
) -> None:
    for number in range(40):
        await submit(probe, f"r-{number}", seq=number + 1)
    replicas = [replica, await probe.replica(), await probe.replica()]
    claimed: list[Delivery] = []
    rounds = 0

    async def all_claimed() -> bool:
        nonlocal rounds
        rounds += 1
        claims = await asyncio.gather(
            *(one.claim(QUEUE, 3, suspects=False) for one in replicas for _ in range(5))
        )
        claimed.extend(delivery for some in claims for delivery in some)
        return len(claimed) >= 40

    await eventually(all_claimed)
    assert rounds == 1 or Capability.PROMPT not in probe.capabilities
    assert len(set(ids(claimed))) == len(claimed) == 40
    assert len({delivery.token for delivery in claimed}) == 40


async def test_no_two_claims_share_a_token_not_even_in_different_queues(
    probe: BrokerProbe, replica: Transport
) -> None:
    tokens = []
    for queue in ("left", "right"):
        await submit(probe, "r-1", queue=queue)
        tokens.append((await claim_one(replica, queue)).token)
    assert len(set(tokens)) == 2


async def test_queues_are_separate(probe: BrokerProbe, replica: Transport) -> None:
    await submit(probe, "here")
    await submit(probe, "there", queue="other-sortedset")
    assert (await claim_one(replica, suspects=False)).request_id == "here"
    assert (await claim_one(replica, "other-sortedset", suspects=False)).request_id == "there"


@pytest.mark.needs(Capability.DEDUPLICATION)
async def test_identical_messages_are_one_while_they_wait(
    probe: BrokerProbe, replica: Transport
) -> None:
    body = await submit(probe, "r-1")
    await submit(probe, "r-1")
    assert list(await probe.waiting(QUEUE)) == [body]
    await claim_one(replica)
    await submit(probe, "r-1")
    await claim_one(replica)


async def test_the_same_id_under_other_tokens_is_another_request(
    probe: BrokerProbe, replica: Transport
) -> None:
    await submit(probe, "r-1", token="t-1")
    await submit(probe, "r-1", token="t-2")
    deliveries = await claim(replica, 2)
    assert {delivery.request_token for delivery in deliveries} == {"t-1", "t-2"}
    for delivery in deliveries:
        assert await replica.settle(delivery, answer(delivery)) is Settlement.DONE
    assert len(await probe.results("result-list")) == 2


async def test_a_bare_request_is_claimed_too(probe: BrokerProbe, replica: Transport) -> None:
    await probe.submit(QUEUE, bare_message("r-1"), DEADLINE)
    assert isinstance((await claim_one(replica)).message, Envelope)


@pytest.mark.parametrize(
    "body", [b"\xff\xfe\x00", b"null", b"[]", b"not json", b"\x00", b'{"id": "r-1"}']
)
async def test_an_unreadable_message_is_handed_out_as_such_and_buried_raw(
    probe: BrokerProbe, replica: Transport, body: bytes
) -> None:
    await probe.submit(QUEUE, body, DEADLINE)
    delivery = await claim_one(replica)
    assert delivery.body == body
    assert isinstance(delivery.message, InvalidMessage)
    assert await replica.settle(delivery, Bury(reason="unreadable")) is Settlement.DONE
    (letter,) = await probe.dead_letters()
    assert letter.body == body
    assert not await probe.waiting(QUEUE)


async def test_a_message_of_a_megabyte_arrives_byte_for_byte(
    probe: BrokerProbe, replica: Transport
) -> None:
    body = await submit(probe, "r-1", payload={"prompt": "x" * 2**20, "é": "ü☃"})
    delivery = await claim_one(replica)
    assert delivery.body == body
    assert await replica.settle(delivery, answer(delivery)) is Settlement.DONE


@pytest.mark.needs(Capability.SCORES)
async def test_only_expired_messages_are_claimed_as_expired(
    probe: BrokerProbe, replica: Transport
) -> None:
    now = await probe.now()
    for request_id, deadline in (("old", now - 200), ("older", now - 300), ("young", now + 300)):
        await submit(probe, request_id, deadline=deadline)
    assert ids(await replica.claim_expired(QUEUE, 1)) == ["older"]
    assert ids(await replica.claim_expired(QUEUE, 10)) == ["old"]
    assert not await replica.claim_expired(QUEUE, 10)
    assert ids(await replica.claim(QUEUE, 10, suspects=False)) == ["young"]


async def test_suspects_are_left_alone_or_claimed_one_at_a_time(
    probe: BrokerProbe, replica: Transport
) -> None:
    await submit(probe, "suspect-1")
    await submit(probe, "suspect-2")
    await lose(probe, 2, times=SUSPECT_AFTER)
    await submit(probe, "calm-1", deadline=DEADLINE + 1)
    await submit(probe, "calm-2", deadline=DEADLINE + 2)

    assert sorted(ids(await claim(replica, 2))) == ["calm-1", "calm-2"]
    suspects = [await claim_one(replica), await claim_one(replica)]
    assert sorted(ids(suspects)) == ["suspect-1", "suspect-2"]
    assert {delivery.deliveries for delivery in suspects} == {SUSPECT_AFTER}
    assert not await replica.claim(QUEUE, 10, suspects=True)


async def test_a_suspect_does_not_keep_the_calm_waiting(
    probe: BrokerProbe, replica: Transport
) -> None:
    for number in range(2):
        await submit(probe, f"suspect-{number}")
    await lose(probe, 2, times=SUSPECT_AFTER)
    await submit(probe, "calm", deadline=DEADLINE + 1)
    claimed = ids(await claim(replica, 2, suspects=True))
    assert "calm" in claimed


@pytest.mark.needs(Capability.SCORES)
async def test_expired_suspects_are_claimed_as_expired(
    probe: BrokerProbe, replica: Transport
) -> None:
    deadline = await probe.now() - 100
    for number in range(3):
        await submit(probe, f"r-{number}", deadline=deadline)
    await lose(probe, 3, times=SUSPECT_AFTER)
    assert len(await replica.claim_expired(QUEUE, 10)) == 3
