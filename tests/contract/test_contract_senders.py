"""Contract: what a request's sender keeps in the broker is seen, and cleaned when it ends."""

from __future__ import annotations

import pytest

from async_processor.testing.probe import BrokerProbe, Capability
from async_processor.testing.stage import QUEUE, answer, claim_one, submit
from async_processor.transport.base import Bury, Delivery, Post, Release, Transport
from async_processor.wire.names import active_key, cancel_key, payload_key
from async_processor.wire.result import Result

pytestmark = pytest.mark.needs(Capability.CANCELLATION)

TOKEN = "0123456789abcdef0123456789abcdef"


async def test_a_waiting_request_that_was_cancelled_is_seen_when_it_is_claimed(
    probe: BrokerProbe, replica: Transport
) -> None:
    await submit(probe, "r-1", token=TOKEN)
    await probe.set_key(cancel_key("r-1"), TOKEN.encode())
    delivery = await claim_one(replica)
    assert list(await replica.cancelled([delivery])) == [delivery.token]


async def test_a_cancel_is_seen_while_the_request_is_leased(
    probe: BrokerProbe, replica: Transport
) -> None:
    await submit(probe, "r-1", token=TOKEN)
    await submit(probe, "r-2", token=TOKEN)
    deliveries = await replica.claim(QUEUE, 10, suspects=False)
    assert not await replica.cancelled(deliveries)
    await probe.set_key(cancel_key("r-2"), TOKEN.encode())
    (cancelled,) = [delivery for delivery in deliveries if delivery.request_id == "r-2"]
    assert list(await replica.cancelled(deliveries)) == [cancelled.token]


async def test_an_old_cancel_does_not_hit_a_reused_id(
    probe: BrokerProbe, replica: Transport
) -> None:
    await submit(probe, "r-1", token=TOKEN)
    await probe.set_key(cancel_key("r-1"), b"the token of another generation")
    assert not await replica.cancelled([await claim_one(replica)])


async def test_a_request_without_a_token_cannot_be_cancelled(
    probe: BrokerProbe, replica: Transport
) -> None:
    await submit(probe, "r-1", token="")
    await probe.set_key(cancel_key("r-1"), b"")
    assert not await replica.cancelled([await claim_one(replica)])


async def test_nobody_of_nobody_is_cancelled(replica: Transport) -> None:
    assert not await replica.cancelled([])


async def _claimed_with_keys(
    probe: BrokerProbe, replica: Transport, *, generation: str, payload: object = None
) -> Delivery:
    await submit(probe, "r-1", token=TOKEN, payload=payload or {"prompt": "hi"})
    await probe.set_key(active_key("r-1"), generation.encode())
    await probe.set_key(cancel_key("r-1"), generation.encode())
    return await claim_one(replica)


async def _keys(probe: BrokerProbe) -> list[bytes | None]:
    return [await probe.get_key(active_key("r-1")), await probe.get_key(cancel_key("r-1"))]


async def test_a_result_cleans_the_keys_of_its_request(
    probe: BrokerProbe, replica: Transport
) -> None:
    delivery = await _claimed_with_keys(probe, replica, generation=TOKEN)
    await replica.settle(delivery, answer(delivery))
    assert await _keys(probe) == [None, None]


async def test_burying_with_a_result_cleans_the_keys_too(
    probe: BrokerProbe, replica: Transport
) -> None:
    delivery = await _claimed_with_keys(probe, replica, generation=TOKEN)
    await replica.settle(delivery, Bury(reason="poison", post=answer(delivery)))
    assert await _keys(probe) == [None, None]


async def test_an_invalid_message_with_a_readable_id_gets_its_keys_cleaned(
    probe: BrokerProbe, replica: Transport
) -> None:
    delivery = await _claimed_with_keys(probe, replica, generation=TOKEN, payload=["not an object"])
    lost = Post(result=Result(id="r-1", payload="{}"), result_queue="result-list")
    await replica.settle(delivery, Bury(reason="payload", post=lost))
    assert await _keys(probe) == [None, None]
    assert len(await probe.results("result-list")) == 1


async def test_the_keys_of_another_generation_stay(probe: BrokerProbe, replica: Transport) -> None:
    delivery = await _claimed_with_keys(probe, replica, generation="a later one")
    await replica.settle(delivery, answer(delivery))
    assert await _keys(probe) == [b"a later one", b"a later one"]


async def test_a_release_leaves_the_keys_alone(probe: BrokerProbe, replica: Transport) -> None:
    delivery = await _claimed_with_keys(probe, replica, generation=TOKEN)
    await replica.settle(delivery, Release())
    assert await _keys(probe) == [TOKEN.encode(), TOKEN.encode()]


@pytest.mark.needs(Capability.STORED_PAYLOADS)
async def test_a_stored_payload_is_read_and_deleted_with_the_result(
    probe: BrokerProbe, replica: Transport
) -> None:
    key = payload_key("r-1", TOKEN)
    stored = b'{"n": 1e400, "blob": "' + b"x" * 100_000 + b'"}'
    await submit(probe, "r-1", token=TOKEN, payload=None, internal={"payload_ref": key})
    await probe.set_key(key, stored)
    delivery = await claim_one(replica)
    assert await replica.stored_payload(delivery) == stored
    await replica.settle(delivery, answer(delivery))
    assert await probe.get_key(key) is None


@pytest.mark.needs(Capability.STORED_PAYLOADS)
async def test_a_stored_payload_that_is_gone_is_none(
    probe: BrokerProbe, replica: Transport
) -> None:
    key = payload_key("r-1", TOKEN)
    await submit(probe, "r-1", token=TOKEN, payload=None, internal={"payload_ref": key})
    assert await replica.stored_payload(await claim_one(replica)) is None
