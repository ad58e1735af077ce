"""What a dead process held goes back at once, and counts; what others hold stays where it is."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from async_processor.testing.redis_probe import RedisProbe, redis_probe
from async_processor.testing.servers import server_binaries
from async_processor.testing.stage import QUEUE, answer, claim_one, submit
from async_processor.transport.base import KnowsHolders, Settlement

SERVERS = server_binaries()


@pytest.fixture(params=SERVERS)
async def probe(request: pytest.FixtureRequest) -> AsyncIterator[RedisProbe]:
    async with redis_probe(SERVERS[request.param]) as probe:
        yield probe


async def test_the_leases_of_one_holder_end_and_count(probe: RedisProbe) -> None:
    dead, living = await probe.replica(), await probe.replica(fresh=True)  # which reclaims nothing
    assert isinstance(living, KnowsHolders)
    await submit(probe, "r-1")
    lost = await claim_one(dead)
    await submit(probe, "r-2")
    kept = await claim_one(living)
    assert await living.reclaim_from(QUEUE, dead.owner) == 1
    assert await dead.settle(lost, answer(lost)) is Settlement.GONE
    again = await claim_one(living)
    assert (again.request_id, again.deliveries) == (lost.request_id, 1)
    assert not await living.extend([kept, again])
    assert await living.settle(kept, answer(kept)) is Settlement.DONE


async def test_a_holder_of_nothing_leaves_all_as_it_is(probe: RedisProbe) -> None:
    replica = await probe.replica()
    await submit(probe, "r-1")
    delivery = await claim_one(replica)
    before = await probe.keyspace()
    assert await replica.reclaim_from(QUEUE, "nobody") == 0
    assert await probe.keyspace() == before
    assert await replica.settle(delivery, answer(delivery)) is Settlement.DONE
