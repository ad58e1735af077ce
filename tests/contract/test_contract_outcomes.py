"""Contract: what each outcome leaves behind in the broker, and that it leaves nothing else."""

from __future__ import annotations

import pytest

from async_processor.testing.eventually import eventually
from async_processor.testing.messages import DEADLINE, message
from async_processor.testing.probe import BrokerProbe, Capability
from async_processor.testing.stage import QUEUE, RESULTS, answer, claim_one, ids, lose, submit
from async_processor.transport.base import Bury, Delivery, Release, Retry, Settlement, Transport
from async_processor.wire import result
from async_processor.wire.envelope import Envelope, InvalidMessage, score


async def _nothing_left(probe: BrokerProbe, replica: Transport) -> None:
    assert not await probe.waiting(QUEUE)
    assert not await replica.claim(QUEUE, 10, suspects=True)
    if Capability.BACKLOG in probe.capabilities:
        assert (await replica.backlog(QUEUE, ())).leased == 0


async def test_a_result_lands_on_the_named_queue_once(
    probe: BrokerProbe, replica: Transport
) -> None:
    await submit(probe, "r-1", token="t-1")
    delivery = await claim_one(replica)
    post = answer(delivery, "results-of-mine")
    assert await replica.settle(delivery, post) is Settlement.DONE
    assert [result.decode(item) for item in await probe.results("results-of-mine")] == [post.result]
    assert not await probe.results(RESULTS)
    await _nothing_left(probe, replica)


@pytest.mark.needs(Capability.ORDER)
async def test_results_lie_in_the_order_in_which_they_were_posted(
    probe: BrokerProbe, replica: Transport
) -> None:
    for number in range(3):
        await submit(probe, f"r-{number}", seq=number + 1)
    deliveries = await replica.claim(QUEUE, 10, suspects=False)
    for delivery in deliveries:
        await replica.settle(delivery, answer(delivery))
    posted = [result.decode(item).id for item in await probe.results(RESULTS)]
    assert posted == ids(deliveries)


@pytest.mark.needs(Capability.RESULT_EXPIRY)
async def test_a_result_queue_lives_as_long_as_the_last_post_says(
    probe: BrokerProbe, replica: Transport
) -> None:
    for number in range(3):
        await submit(probe, f"r-{number}", seq=number + 1)
    first, second, third = await replica.claim(QUEUE, 3, suspects=False)
    await replica.settle(first, answer(first))
    assert await probe.result_lifetime(RESULTS) is None
    await replica.settle(second, answer(second, expires_after=500))
    assert 400 < (await probe.result_lifetime(RESULTS) or 0) <= 500
    await replica.settle(third, answer(third))
    assert 400 < (await probe.result_lifetime(RESULTS) or 0) <= 500


@pytest.mark.needs(Capability.RESULT_EXPIRY)
async def test_an_expired_result_queue_is_gone(probe: BrokerProbe, replica: Transport) -> None:
    await submit(probe, "r-1")
    delivery = await claim_one(replica)
    await replica.settle(delivery, answer(delivery, expires_after=0.2))

    async def gone() -> bool:
        return not await probe.results(RESULTS)

    await eventually(gone)


def _rewritten(delivery: Delivery) -> bytes:
    assert isinstance(delivery.message, Envelope)
    return delivery.message.rewritten(retry_count=1, request_queue_name=delivery.queue_name)


async def test_a_retry_comes_back_when_it_is_due_and_not_before(
    probe: BrokerProbe, replica: Transport
) -> None:
    await submit(probe, "r-1")
    delivery = await claim_one(replica)
    due_at = await probe.now() + 0.5
    body = _rewritten(delivery)
    assert await replica.settle(delivery, Retry(body=body, due_at=due_at)) is Settlement.DONE
    if Capability.RECLAIMING in probe.capabilities:
        assert await replica.promote_retries() == pytest.approx(due_at, abs=0.01)

    claimed: list[Delivery] = []

    async def returned() -> bool:
        await replica.promote_retries()
        claimed.extend(await replica.claim(QUEUE, 10, suspects=False))
        return bool(claimed)

    await eventually(returned)
    assert claimed[0].claimed_at >= due_at - 0.01
    assert claimed[0].body == body
    assert await replica.promote_retries() is None


@pytest.mark.needs(Capability.SCORES)
async def test_a_due_retry_returns_to_its_own_queue_under_its_own_deadline(
    probe: BrokerProbe, replica: Transport
) -> None:
    bodies = {}
    for queue, seq in (("first-sortedset", 4), ("second-sortedset", 9)):
        await submit(probe, f"r-{seq}", queue=queue, seq=seq)
        delivery = await claim_one(replica, queue)
        bodies[queue] = _rewritten(delivery)
        await replica.settle(delivery, Retry(body=bodies[queue], due_at=await probe.now()))

    async def promoted() -> bool:
        return await replica.promote_retries() is None

    await eventually(promoted)
    for queue, seq in (("first-sortedset", 4), ("second-sortedset", 9)):
        assert await probe.waiting(queue) == {bodies[queue]: score(DEADLINE, seq)}


async def test_a_retry_is_an_outcome_so_deliveries_start_again(
    probe: BrokerProbe, replica: Transport
) -> None:
    await submit(probe, "r-1")
    await lose(probe, 1)
    delivery = await claim_one(replica)
    await replica.settle(delivery, Retry(body=_rewritten(delivery), due_at=await probe.now()))

    async def promoted() -> bool:
        return await replica.promote_retries() is None

    await eventually(promoted)
    assert (await claim_one(replica)).deliveries == 0


@pytest.mark.needs(Capability.SCORES)
@pytest.mark.parametrize(
    "broken",
    [
        message("r-2", internal={"request_queue_name": QUEUE}, endpoint="http://elsewhere"),
        message("r-2", endpoint="http://elsewhere"),
        b"\x00 no JSON",
    ],
    ids=["invalid", "nameless", "unreadable"],
)
async def test_a_due_retry_that_is_broken_is_claimed_as_expired_and_so_gets_its_result(
    probe: BrokerProbe, replica: Transport, broken: bytes
) -> None:
    await submit(probe, "r-1")
    delivery = await claim_one(replica)
    await replica.settle(delivery, Retry(body=broken, due_at=await probe.now()))

    async def promoted() -> bool:
        return await replica.promote_retries() is None

    await eventually(promoted)
    claimed: list[Delivery] = []

    async def expired() -> bool:
        claimed.extend(await replica.claim_expired(QUEUE, 10))
        return bool(claimed)

    await eventually(expired)
    (again,) = claimed
    assert again.body == broken
    assert isinstance(again.message, InvalidMessage)
    assert not await probe.dead_letters(), "whoever claims it buries it"


async def test_nothing_to_retry_is_never_due(replica: Transport) -> None:
    assert await replica.promote_retries() is None


@pytest.mark.needs(Capability.RECLAIMING)
async def test_promoting_tells_when_the_next_retry_is_due(
    probe: BrokerProbe, replica: Transport
) -> None:
    now = await probe.now()
    for number, wait in enumerate((300, 200, 400)):
        await submit(probe, f"r-{number}")
        delivery = await claim_one(replica)
        await replica.settle(delivery, Retry(body=_rewritten(delivery), due_at=now + wait))
    assert await replica.promote_retries() == pytest.approx(now + 200, abs=0.01)


@pytest.mark.needs(Capability.SCORES)
async def test_a_release_counts_nothing_and_keeps_the_score(
    probe: BrokerProbe, replica: Transport
) -> None:
    body = await submit(probe, "r-1", seq=6)
    await lose(probe, 1)
    delivery = await claim_one(replica)
    assert await replica.settle(delivery, Release()) is Settlement.DONE
    assert await probe.waiting(QUEUE) == {body: score(DEADLINE, 6)}
    assert (await claim_one(replica)).deliveries == 1


@pytest.mark.needs(Capability.SCORES)
async def test_a_release_may_change_the_score(probe: BrokerProbe, replica: Transport) -> None:
    body = message("r-1")
    await probe.submit(QUEUE, body, DEADLINE - 500)
    delivery = await claim_one(replica)
    assert await replica.settle(delivery, Release(score=DEADLINE + 0.5)) is Settlement.DONE
    assert await probe.waiting(QUEUE) == {body: DEADLINE + 0.5}
    assert (await claim_one(replica)).score == DEADLINE + 0.5


@pytest.mark.needs(Capability.SCORES)
async def test_a_release_may_change_the_body_and_nothing_else(
    probe: BrokerProbe, replica: Transport
) -> None:
    await submit(probe, "r-1", seq=6)
    await lose(probe, 1)
    delivery = await claim_one(replica)
    assert isinstance(delivery.message, Envelope)
    body = delivery.message.rewritten(retry_count=0, request_queue_name=QUEUE, dispatched=True)

    assert await replica.settle(delivery, Release(body=body)) is Settlement.DONE

    assert await probe.waiting(QUEUE) == {body: score(DEADLINE, 6)}
    again = await claim_one(replica)
    assert (again.body, again.deliveries) == (body, 1)
    await replica.settle(again, answer(again))
    await _nothing_left(probe, replica)


async def test_released_messages_are_claimed_again_at_once(
    probe: BrokerProbe, replica: Transport
) -> None:
    await submit(probe, "r-1")
    delivery = await claim_one(replica)
    await replica.settle(delivery, Release())
    again = await claim_one(await probe.replica())
    assert again.token != delivery.token
    assert again.deliveries == 0


async def test_a_buried_message_lies_raw_beside_its_reason(
    probe: BrokerProbe, replica: Transport
) -> None:
    body = await submit(probe, "r-1", payload={"é": '"\\/\u2028'})
    await lose(probe, 1)
    delivery = await claim_one(replica)
    bury = Bury(reason='it says "no"')
    assert await replica.settle(delivery, bury) is Settlement.DONE
    (letter,) = await probe.dead_letters()
    assert letter.body == body
    assert letter.reason == 'it says "no"'
    assert letter.queue_name == QUEUE
    assert letter.deliveries == 1
    assert abs(letter.buried_at - await probe.now()) < 10
    assert not await probe.results(RESULTS)
    await _nothing_left(probe, replica)


async def test_burying_with_a_result_posts_it_too(probe: BrokerProbe, replica: Transport) -> None:
    await submit(probe, "r-1")
    delivery = await claim_one(replica)
    post = answer(delivery, "results-of-mine")
    assert await replica.settle(delivery, Bury(reason="poison", post=post)) is Settlement.DONE
    assert len(await probe.dead_letters()) == 1
    assert [result.decode(item) for item in await probe.results("results-of-mine")] == [post.result]


@pytest.mark.needs(Capability.BACKLOG)
async def test_of_too_many_dead_letters_the_oldest_are_dropped(
    probe: BrokerProbe, replica: Transport
) -> None:
    for number in range(5):
        await submit(probe, f"r-{number}", seq=number + 1)
    for delivery in await replica.claim(QUEUE, 10, suspects=False):
        await replica.settle(delivery, Bury(reason=delivery.request_id))
    assert await replica.trim_dead_letters(5) == 0
    assert await replica.trim_dead_letters(2) == 3
    assert [letter.reason for letter in await probe.dead_letters()] == ["r-3", "r-4"]
    assert await replica.trim_dead_letters(2) == 0
