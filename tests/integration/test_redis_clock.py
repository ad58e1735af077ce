"""Every call that happens regularly follows the server's clock, not the claims alone.

Behind a closed gate nothing is claimed, and there, too, deadlines are judged by that clock.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from async_processor.testing.redis_probe import RedisProbe, redis_probe
from async_processor.testing.servers import server_binaries
from async_processor.testing.stage import QUEUE, claim_one, submit
from async_processor.transport.base import Delivery
from async_processor.transport.redis_sorted_set import RedisSortedSet

SERVERS = server_binaries()
CALLS: dict[str, Callable[[RedisSortedSet, Delivery], Awaitable[object]]] = {
    "next_expiry": lambda replica, _: replica.next_expiry(QUEUE),
    "promote_retries": lambda replica, _: replica.promote_retries(),
    "extend": lambda replica, delivery: replica.extend([delivery]),
    "backlog": lambda replica, _: replica.backlog(QUEUE, ()),
    "claim": lambda replica, _: replica.claim(QUEUE, 1, suspects=False),
}


@pytest.fixture(params=SERVERS)
async def probe(request: pytest.FixtureRequest) -> AsyncIterator[RedisProbe]:
    async with redis_probe(SERVERS[request.param]) as probe:
        yield probe


@pytest.mark.parametrize("off", [-3600.0, 3600.0])
@pytest.mark.parametrize("call", CALLS)
async def test_a_call_sets_a_clock_right_that_is_off(
    probe: RedisProbe, call: str, off: float
) -> None:
    """As after a suspended machine, or after a failover to a server with another clock."""
    await submit(probe, "a")
    replica = await probe.replica()
    delivery = await claim_one(replica)
    replica.clock.synchronise(replica.clock.now() + off)

    await CALLS[call](replica, delivery)

    assert replica.clock.now() == pytest.approx(await probe.now(), abs=30)


async def test_a_clock_that_is_right_is_left_alone(probe: RedisProbe) -> None:
    """Answers take their time, and a clock that followed each of them would tremble."""
    replica = await probe.replica()
    clock = replica.clock
    asked_at = clock.monotonic() - 10.0
    offset = clock.now() - clock.monotonic()

    replica._link.hear_time(clock.now() - 5.0, asked_at)

    assert clock.now() - clock.monotonic() == pytest.approx(offset, abs=1e-6)
    replica._link.hear_time(clock.now() + 5.0, clock.monotonic())
    assert clock.now() - clock.monotonic() == pytest.approx(offset + 5.0, abs=1.0)
