"""What tests of transports do all the time: submit, claim, lose a lease, post a result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from async_processor.testing.eventually import eventually
from async_processor.testing.messages import DEADLINE, message
from async_processor.testing.probe import BrokerProbe
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


async def claim_one(transport: Transport, queue: str = QUEUE, *, suspects: bool = True) -> Delivery:
    """Claim the one message that waits."""
    deliveries = await transport.claim(queue, 10, suspects=suspects)
    _expect(len(deliveries), 1)
    return deliveries[0]


def ids(deliveries: Sequence[Delivery]) -> list[str]:
    """The ids of the requests, in the order of the deliveries."""
    return [delivery.request_id for delivery in deliveries]


async def reclaim(transport: Transport, count: int, queue: str = QUEUE) -> None:
    """Wait until that many leases have ended and are taken back."""
    taken = 0

    async def all_taken() -> bool:
        nonlocal taken
        taken += await transport.reclaim(queue)
        return taken >= count

    await eventually(all_taken)
    _expect(taken, count)


async def lose(probe: BrokerProbe, count: int, *, times: int = 1, queue: str = QUEUE) -> None:
    """Let a replica claim messages and let it die, again and again."""
    for _ in range(times):
        victim = await probe.replica(lease_ttl=SHORT_LEASE)
        claimed = [
            delivery
            for _ in range(count)
            for delivery in await victim.claim(queue, 1, suspects=True)
        ]
        _expect(len(claimed), count)
        await reclaim(await probe.replica(), count, queue)


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
