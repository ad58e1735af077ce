"""The roll of the replicas on a real Redis: ranks that differ, a dead one that is gone after its
lease, one that stops and leaves at once, and nothing left when nobody is there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from async_processor.admission import census
from async_processor.admission.base import Continue
from async_processor.admission.build import GateContext, build_gate
from async_processor.admission.live_number import LiveNumber
from async_processor.admission.settings import LocalMaxConcurrencyGate
from async_processor.clock import SystemClock
from async_processor.fields import TlsSettings
from async_processor.redis_io import roll
from async_processor.redis_io.client import RedisClient
from async_processor.redis_io.connect import open_client
from async_processor.redis_io.roll import RedisRoll
from async_processor.redis_io.shared import SharedClients
from async_processor.testing.candidates import candidate
from async_processor.testing.eventually import eventually, until
from async_processor.testing.servers import RedisServer

QUEUE = "request-sortedset"
KEY = f"{{{QUEUE}}}:replicas"


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[RedisClient]:
    client = open_client(redis_url)
    yield client
    await client.close()


@pytest.fixture
async def clients() -> AsyncIterator[SharedClients]:
    clients = SharedClients(tls=TlsSettings(), clock=SystemClock())
    yield clients
    await clients.stop()


async def test_ranks_differ_and_stay(redis_url: str, clients: SharedClients) -> None:
    rolls = [RedisRoll(clients.at(redis_url), QUEUE) for _ in range(5)]
    first = [await each.renew("") for each in rolls]
    assert [(seen.replicas, seen.age) for seen in first] == [(n, 0) for n in range(1, 6)]
    ranks = [(await each.renew("")).rank for each in rolls]
    for _ in range(2):
        seen = [await each.renew("") for each in rolls]
        assert sorted((each.replicas, each.rank) for each in seen) == [(5, n) for n in range(5)]
        assert len({each.roster for each in seen}) == 1
        assert [each.rank for each in seen] == ranks


async def test_the_roll_says_for_how_long_each_has_been_on_it_without_a_break(
    redis_url: str, clients: SharedClients, client: RedisClient
) -> None:
    one, two = (RedisRoll(clients.at(redis_url), QUEUE) for _ in range(2))
    alone = await one.renew("")
    assert (alone.age, alone.oldest) == (0, 0)

    async def older() -> bool:
        return (await one.renew("")).age >= 0.05

    await eventually(older)
    joined = await two.renew("")
    assert joined.age == 0
    assert joined.oldest >= 0.05
    seen = await one.renew("")
    assert seen.oldest < seen.age
    await client.execute("DEL", KEY)
    back = await two.renew("")
    assert (back.age, back.oldest) == (0, 0)
    assert (await one.renew("")).age == 0


async def test_who_has_not_renewed_for_half_a_lease_begins_anew_for_others_may_be_gone(
    redis_url: str, clients: SharedClients, client: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (RedisRoll(clients.at(redis_url), QUEUE) for _ in range(2))
    await one.renew("")

    async def older() -> bool:
        return (await one.renew("")).age >= 0.05

    await eventually(older)
    monkeypatch.setattr(roll, "LEASE_SECONDS", 60)  # then what is left of the first is not half
    assert (await two.renew("")).oldest == 0
    seen = await one.renew("")
    assert (seen.replicas, seen.age) == (2, 0)


async def test_a_clock_that_jumps_back_lets_a_replica_begin_anew(
    redis_url: str, clients: SharedClients, client: RedisClient
) -> None:
    one = RedisRoll(clients.at(redis_url), QUEUE)
    await one.renew("")
    (name,) = await client.execute("HKEYS", KEY)
    await client.execute("HSET", KEY, name, "99999999999999 99999999999000 ")
    assert (await one.renew("")).age == 0

    async def older() -> bool:
        return (await one.renew("")).age > 0

    await eventually(older)


async def test_a_roster_is_agreed_on_when_all_the_others_keep_to_it(
    redis_url: str, clients: SharedClients
) -> None:
    one, two, three = (RedisRoll(clients.at(redis_url), QUEUE) for _ in range(3))
    alone = await one.renew("")
    assert alone.agreed  # there are no others
    assert not (await two.renew("")).agreed
    roster = (await one.renew(alone.roster)).roster
    assert not (await two.renew("")).agreed  # one keeps to a roster without two
    await one.renew(roster)
    assert (await two.renew("")).agreed
    assert not (await one.renew(roster)).agreed
    assert not (await three.renew("")).agreed
    await three.leave()
    assert (await two.renew(roster)).agreed
    await one.leave()
    assert (await two.renew(roster)).agreed
    assert (await one.renew(roster)).age == 0  # it was gone


async def test_who_leaves_is_gone_and_the_last_leaves_nothing(
    redis_url: str, clients: SharedClients, client: RedisClient
) -> None:
    one, other = (RedisRoll(clients.at(redis_url), QUEUE) for _ in range(2))
    await one.renew("")
    assert (await other.renew("")).replicas == 2
    await one.leave()
    seen = await other.renew("")
    assert (seen.replicas, seen.rank) == (1, 0)
    assert await client.execute("KEYS", "*") == [KEY.encode()]
    await other.leave()
    await other.leave()
    assert await client.execute("KEYS", "*") == []


async def test_the_dead_are_gone_after_their_lease(
    redis_url: str, clients: SharedClients, client: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roll, "LEASE_SECONDS", 2)
    dead, alive = (RedisRoll(clients.at(redis_url), QUEUE) for _ in range(2))
    await dead.renew("")
    assert (await alive.renew("")).replicas == 2

    async def alone() -> bool:
        return (await alive.renew("")).replicas == 1

    await eventually(alone)

    async def forgotten() -> bool:
        return not await client.execute("EXISTS", KEY)

    await eventually(forgotten)  # also when all of them die


class Replica:
    """A process with a gate that is shared, as far as gates go."""

    def __init__(self, url: str) -> None:
        self.context = GateContext(
            prometheus=None, clock=SystemClock(), redis_url=url, queue_name=QUEUE
        )
        self.gate = build_gate(
            LocalMaxConcurrencyGate(limit=10, shared=True), self.context, workers=LiveNumber(16)
        )
        self._task: asyncio.Task[None] | None = None

    @property
    def share(self) -> int:
        return self.gate.permits(16)

    async def start(self) -> None:
        assert self.context.roll is not None
        await self.gate.start()
        self._task = asyncio.create_task(self.context.roll.run())
        await asyncio.sleep(0)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def close(self) -> None:
        await self.stop()
        await self.gate.stop()
        await self.context.redis.stop()


@pytest.fixture
async def replicas(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[list[Replica]]:
    monkeypatch.setattr(census, "RENEW_SECONDS", 0.2)
    monkeypatch.setattr(census, "JOIN_SECONDS", 0.4)
    async with AsyncExitStack() as stack:
        three = [Replica(redis_server.url) for _ in range(3)]
        for replica in three:
            stack.push_async_callback(replica.close)
        yield three


async def test_replicas_come_and_go_and_the_shares_add_up(replicas: list[Replica]) -> None:
    one, *others = replicas
    await one.start()
    assert one.share == 0  # not known yet
    await until(lambda: one.share == 10)
    for other in others:
        await other.start()
        assert other.share == 0
    await until(lambda: sorted(each.share for each in replicas) == [3, 3, 4])
    await one.stop()
    await until(lambda: sorted(each.share for each in others) == [5, 5])
    await others[0].stop()
    await until(lambda: others[1].share == 10)


async def test_while_replicas_join_they_never_have_more_than_the_whole(
    replicas: list[Replica],
) -> None:
    await replicas[0].start()
    await until(lambda: replicas[0].share == 10)
    most = 0
    for replica in replicas[1:]:
        await replica.start()
    while sorted(each.share for each in replicas) != [3, 3, 4]:
        most = max(most, sum(each.share for each in replicas))
        await asyncio.sleep(0.005)
    assert most <= 10


async def test_a_roll_that_is_lost_gives_nobody_more_than_the_whole(
    replicas: list[Replica], redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever comes back first is alone on it for a moment, whether it ran before or has begun."""
    client = open_client(redis_server.url)
    one, two, three = replicas
    for replica in (one, two):
        await replica.start()
    await until(lambda: (one.share, two.share) == (5, 5))
    with monkeypatch.context() as patience:
        patience.setattr(census, "JOIN_SECONDS", 60)  # however slow this machine is
        await client.execute("DEL", KEY)
        await three.start()

        async def all_are_back() -> bool:
            assert one.share + two.share + three.share <= 10
            return bool(await client.execute("HLEN", KEY) == 3)

        await eventually(all_are_back)
        await until(lambda: sorted((one.share, two.share)) in ([3, 3], [3, 4]))
        assert three.share == 0
    await until(lambda: sorted(each.share for each in replicas) == [3, 3, 4])
    await client.close()


async def test_who_joins_waits_for_what_runs_elsewhere(replicas: list[Replica]) -> None:
    one, two, _ = replicas
    await one.start()
    await until(lambda: one.share == 10)
    running = [await one.gate.admit(candidate()) for _ in range(10)]
    await two.start()
    await until(lambda: one.gate.state().reason == "all 5 slots are taken")
    assert two.share == 0
    for left, verdict in reversed(list(enumerate(running[1:], start=1))):
        assert isinstance(verdict, Continue)
        verdict.ticket.release()
        assert left + two.share <= 10
        if left > 5:
            assert two.share == 0
    await until(lambda: (one.share, two.share) == (4, 5))


async def test_a_redis_that_is_away_leaves_the_shares_as_they_were(
    replicas: list[Replica], redis_server: RedisServer
) -> None:
    for replica in replicas:
        await replica.start()
    await until(lambda: sorted(each.share for each in replicas) == [3, 3, 4])
    before = [each.share for each in replicas]
    redis_server.kill()
    await asyncio.sleep(1)
    assert [each.share for each in replicas] == before
    await asyncio.to_thread(redis_server.start)
    await until(lambda: sorted(each.share for each in replicas) == [3, 3, 4])
