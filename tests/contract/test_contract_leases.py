"""Contract: a lease ends once, by its holder's word or by its time, and never by both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from async_processor.testing.messages import DEADLINE, message
from async_processor.testing.probe import BrokerProbe, Capability
from async_processor.testing.stage import (
    QUEUE,
    RESULTS,
    SHORT_LEASE,
    answer,
    claim,
    claim_one,
    ids,
    in_order,
    leases_end,
    lose,
    submit,
    taken_over,
)
from async_processor.transport.base import (
    Bury,
    Delivery,
    Outcome,
    Release,
    Retry,
    Settlement,
    Transport,
)
from async_processor.wire.envelope import score
from async_processor.wire.names import active_key

LATE_OUTCOMES: dict[str, Callable[[Delivery], Outcome]] = {
    "post": answer,
    "retry": lambda delivery: Retry(body=message("r-1", deadline=DEADLINE + 9), due_at=0),
    "release": lambda delivery: Release(score=1.0),
    "release as another": lambda delivery: Release(body=message("r-2")),
    "bury": lambda delivery: Bury(reason="late", post=answer(delivery)),
}


async def test_a_message_is_settled_once(probe: BrokerProbe, replica: Transport) -> None:
    await submit(probe, "r-1")
    delivery = await claim_one(replica)
    settled = await asyncio.gather(*(replica.settle(delivery, answer(delivery)) for _ in range(3)))
    assert sorted(one.name for one in settled) == ["DONE", "GONE", "GONE"]
    assert len(await probe.results(RESULTS)) == 1


@pytest.mark.needs(Capability.SCORES)
async def test_a_lost_lease_counts_a_delivery_and_keeps_the_score(
    probe: BrokerProbe, replica: Transport
) -> None:
    body = await submit(probe, "r-1", seq=5)
    await lose(probe, 1)
    assert await probe.waiting(QUEUE) == {body: score(DEADLINE, 5)}
    delivery = await claim_one(replica)
    assert (delivery.body, delivery.deliveries) == (body, 1)
    assert delivery.score == score(DEADLINE, 5)


async def test_every_lost_lease_counts(probe: BrokerProbe, replica: Transport) -> None:
    await submit(probe, "r-1")
    await lose(probe, 1, times=3)
    assert (await claim_one(replica)).deliveries == 3


@pytest.mark.parametrize("outcome", LATE_OUTCOMES)
@pytest.mark.needs(Capability.FENCED)
async def test_who_lost_the_lease_writes_nothing(
    probe: BrokerProbe, replica: Transport, outcome: str
) -> None:
    body = await submit(probe, "r-1", token="t-1", seq=2)
    keys = Capability.CANCELLATION in probe.capabilities
    if keys:
        await probe.set_key(active_key("r-1"), b"t-1")
    late = await probe.replica(lease_ttl=SHORT_LEASE)
    delivery = await claim_one(late)
    holder = await taken_over(probe, replica)

    late_outcome = LATE_OUTCOMES[outcome](delivery)
    assert await late.settle(delivery, late_outcome) is Settlement.GONE

    if Capability.SCORES in probe.capabilities:
        assert await probe.waiting(QUEUE) == {body: score(DEADLINE, 2)}
    assert not await probe.results(RESULTS)
    assert not await probe.dead_letters()
    if keys:
        assert await probe.get_key(active_key("r-1")) == b"t-1"
    assert await replica.promote_retries() is None
    assert (holder or await claim_one(replica)).body == body


@pytest.mark.needs(Capability.FENCED)
async def test_only_the_new_holder_of_a_message_settles_it(
    probe: BrokerProbe, replica: Transport
) -> None:
    await submit(probe, "r-1")
    late = await probe.replica(lease_ttl=SHORT_LEASE)
    old = await claim_one(late)
    await leases_end(probe, replica, 1)
    new = await claim_one(replica)
    assert new.token != old.token
    assert await late.settle(old, answer(old)) is Settlement.GONE
    assert await replica.settle(new, answer(new)) is Settlement.DONE
    assert len(await probe.results(RESULTS)) == 1


async def test_an_extended_lease_is_not_taken_back(probe: BrokerProbe, replica: Transport) -> None:
    await submit(probe, "r-1")
    holder = await probe.replica(lease_ttl=1.0)
    delivery = await claim_one(holder)
    loop = asyncio.get_running_loop()
    end = loop.time() + 2.0
    while loop.time() < end:
        assert not await holder.extend([delivery])
        assert await replica.reclaim(QUEUE) == 0
        await asyncio.sleep(0.05)
    assert await holder.settle(delivery, answer(delivery)) is Settlement.DONE


async def test_extending_tells_which_leases_are_lost_and_renews_the_others(
    probe: BrokerProbe, replica: Transport
) -> None:
    holder = await probe.replica(lease_ttl=SHORT_LEASE)
    await submit(probe, "lost")
    lost = await claim_one(holder)
    await leases_end(probe, replica, 1)
    await submit(probe, "settled")
    (settled,) = [
        delivery for delivery in await claim(replica, 2) if delivery.request_id == "settled"
    ]
    await replica.settle(settled, answer(settled))
    await submit(probe, "held")
    held = await claim_one(replica)
    assert set(await replica.extend([lost, held, settled])) == {lost.token, settled.token}
    assert await replica.settle(held, answer(held)) is Settlement.DONE


async def test_extending_does_not_bring_a_lost_lease_back(
    probe: BrokerProbe, replica: Transport
) -> None:
    await submit(probe, "r-1")
    late = await probe.replica(lease_ttl=SHORT_LEASE)
    delivery = await claim_one(late)
    holder = await taken_over(probe, replica)
    assert list(await late.extend([delivery])) == [delivery.token]
    assert await late.settle(delivery, answer(delivery)) is Settlement.GONE
    if holder is None:
        await claim_one(replica)


async def test_extending_nothing_loses_nothing(replica: Transport) -> None:
    assert not await replica.extend([])


async def test_reclaiming_touches_one_queue_only(probe: BrokerProbe, replica: Transport) -> None:
    await submit(probe, "there", queue="other-sortedset")
    dying = await probe.replica(lease_ttl=SHORT_LEASE)
    await claim_one(dying, "other-sortedset")
    await submit(probe, "here")
    await claim_one(dying)
    await leases_end(probe, replica, 1)
    assert not await probe.waiting("other-sortedset")
    await leases_end(probe, replica, 1, "other-sortedset")


@pytest.mark.needs(Capability.INSTANT_RELEASE)
async def test_stopping_frees_the_leases_at_once_and_counts_nothing(
    probe: BrokerProbe, replica: Transport
) -> None:
    for number in range(3):
        await submit(probe, f"r-{number}", seq=number + 1)
    await submit(probe, "kept", deadline=DEADLINE + 1)
    stopping = await probe.replica()
    given_back = await claim(stopping, 3)
    (kept,) = await claim(replica, 1)

    await stopping.stop()

    again = await claim(replica, 3)
    assert in_order(probe, ids(again)) == in_order(probe, ids(given_back))
    if Capability.SCORES in probe.capabilities:
        assert [delivery.score for delivery in again] == [one.score for one in given_back]
    assert {delivery.deliveries for delivery in again} == {0}
    assert not await replica.claim(QUEUE, 10, suspects=False)
    assert await replica.settle(kept, answer(kept)) is Settlement.DONE


@pytest.mark.needs(Capability.INSTANT_RELEASE)
async def test_stopping_twice_does_nothing_the_second_time(
    probe: BrokerProbe, replica: Transport
) -> None:
    await submit(probe, "r-1")
    stopping = await probe.replica()
    await claim_one(stopping)
    await stopping.stop()
    await stopping.stop()
    await claim_one(replica)
