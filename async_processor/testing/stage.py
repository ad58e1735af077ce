"""What tests of transports do all the time: submit, claim, lose a lease, post a result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from async_processor.testing.eventually import eventually
from async_processor.testing.messages import DEADLINE, message
from async_processor.testing.probe import BrokerProbe, Capability
from async_processor.transport.base import Delivery, Post, Transport
from async_processor.wire.envelope import score
from async_processor.wire.result import Result

QUEUE = "request-sortedset"
RESULTS = "result-list"

SHORT_LEASE = 0.3
"""Seconds, for leases that a test waits out."""


async def submit(
    probe: BrokerProbe,
    request_id: str,
    *,
    queue: str = QUEUE,
    deadline: float = DEADLINE,
    seq: int = 0,
    **fields: Any,
) -> bytes:
    """Submit a message as producers do, under the score of its deadline; returns its body."""
    body = message(request_id, deadline=deadline, seq=seq, **fields)
    await probe.submit(queue, body, score(deadline, seq))
    return body


async def claim(
    transport: Transport, count: int, queue: str = QUEUE, *, suspects: bool = False
) -> list[Delivery]:
    """Claim so many messages, in as many claims as it takes until they have come."""
    claimed: list[Delivery] = []

    async def all_claimed() -> bool:
        claimed.extend(await transport.claim(queue, count - len(claimed), suspects=suspects))
        return len(claimed) >= count

    await eventually(all_claimed)
    return claimed


async def claim_one(transport: Transport, queue: str = QUEUE, *, suspects: bool = True) -> Delivery:
    """Claim the one message that waits, as soon as it does."""
    found: list[Delivery] = []

    async def claimed() -> bool:
        found.extend(await transport.claim(queue, 10, suspects=suspects))
        return bool(found)

    await eventually(claimed)
    _expect(len(found), 1)
    return found[0]


def ids(deliveries: Sequence[Delivery]) -> list[str]:
    """The ids of the requests, in the order of the deliveries."""
    return [delivery.request_id for delivery in deliveries]


def in_order(probe: BrokerProbe, request_ids: Sequence[str]) -> list[str]:
    """Ids as a broker that keeps an order hands them out; sorted for one that keeps none."""
    ordered = Capability.ORDER in probe.capabilities
    return list(request_ids) if ordered else sorted(request_ids)


async def reclaim(transport: Transport, count: int, queue: str = QUEUE) -> None:
    """Wait until that many leases have ended and are taken back."""
    taken = 0

    async def all_taken() -> bool:
        nonlocal taken
        taken += await transport.reclaim(queue)
        return taken >= count

    await eventually(all_taken)
    _expect(taken, count)


async def leases_end(
    probe: BrokerProbe, transport: Transport, count: int, queue: str = QUEUE
) -> None:
    """Wait until that many short leases have ended, and see that they are taken back."""
    if Capability.RECLAIMING in probe.capabilities:
        await reclaim(transport, count, queue)
    else:
        await probe.leases_end(SHORT_LEASE)


async def taken_over(probe: BrokerProbe, transport: Transport) -> Delivery | None:
    """Wait until a short lease is lost for good.

    A broker that takes leases back by itself may do so only when somebody else wants the message:
    then that is `transport`, and its claim is returned.
    """
    await leases_end(probe, transport, 1)
    return None if Capability.RECLAIMING in probe.capabilities else await claim_one(transport)


async def lose(probe: BrokerProbe, count: int, *, times: int = 1, queue: str = QUEUE) -> None:
    """Let a replica claim messages and let it die, again and again, until it was counted."""
    for _ in range(times + probe.forgiven):
        victim = await probe.replica(lease_ttl=SHORT_LEASE)
        for _ in range(count):
            await claim(victim, 1, queue, suspects=True)
        await leases_end(probe, await probe.replica(), count, queue)


def _expect(found: int, wanted: int) -> None:
    if found != wanted:
        raise AssertionError(f"{found} messages where {wanted} should be")


def answer(
    delivery: Delivery, result_queue: str = RESULTS, *, expires_after: float | None = None
) -> Post:
    """A result for a delivery."""
    result = Result(
        id=delivery.request_id,
        status_code=200,
        payload='{"text": "hello"}',
        request_token=delivery.request_token,
    )
    return Post(result=result, result_queue=result_queue, expires_after=expires_after)
