"""Whatever replicas do, in whatever order, dying and losing answers: every request exists exactly
once at every moment, and ends with exactly one result or dead letter."""

from __future__ import annotations

import asyncio
import atexit
from collections import Counter
from collections.abc import Coroutine, Sequence
from functools import cache
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from async_processor.errors import BrokerUnavailable
from async_processor.redis_io.keys import lot_key, queue_keys
from async_processor.redis_io.scripts import CLAIM, RECLAIM, SETTLE, Script
from async_processor.testing.messages import DEADLINE
from async_processor.testing.proxy import BadNetwork
from async_processor.testing.redis_probe import RedisProbe
from async_processor.testing.servers import RedisServer
from async_processor.testing.stage import QUEUE, answer, submit
from async_processor.transport.base import (
    Bury,
    Delivery,
    Outcome,
    Park,
    Release,
    Retry,
    Settlement,
)
from async_processor.transport.redis_sorted_set import RedisSortedSet
from async_processor.wire import result
from async_processor.wire.envelope import Envelope, read

KEYS = queue_keys(QUEUE)
RECLAIM_KEYS = (KEYS.queue, KEYS.claims, KEYS.leases, KEYS.deliveries, KEYS.lots)
REPLICAS = st.integers(0, 1)


@cache
def _server() -> RedisServer:
    server = RedisServer()
    atexit.register(server.remove)
    server.start()
    return server


class Replicas(RuleBasedStateMachine):
    """Two replicas of one queue. A replica that dies loses its memory, not its leases."""

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.server = _server()
        self.server.flush()
        self.submitted = 0
        self.held: list[dict[str, Delivery]] = [{}, {}]
        self.run(self.connect())

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    async def connect(self) -> None:
        self.network = BadNetwork(self.server.port)
        await self.network.start()
        self.probe = RedisProbe(
            self.server.url, replica_url=f"redis://127.0.0.1:{self.network.port}/0"
        )
        self.replicas = [await self.probe.replica(), await self.probe.replica()]

    @rule(count=st.integers(1, 5), seq=st.integers(0, 3))
    def submit(self, count: int, seq: int) -> None:
        for _ in range(count):
            self.submitted += 1
            name, home = f"r-{self.submitted}", {"request_queue_name": QUEUE}
            self.run(submit(self.probe, name, seq=seq, internal=home))

    @rule(who=REPLICAS, limit=st.integers(1, 4), suspects=st.booleans())
    def claim(self, who: int, limit: int, suspects: bool) -> None:
        taken = self.run(self.replicas[who].claim(QUEUE, limit, suspects=suspects))
        assert len(taken) <= limit
        doubtful = sum(delivery.deliveries >= 2 for delivery in taken)
        assert doubtful <= int(suspects)
        self.held[who] |= {delivery.token: delivery for delivery in taken}

    @rule(who=REPLICAS, limit=st.integers(1, 4))
    def claim_and_lose_the_answer(self, who: int, limit: int) -> None:
        self.lose_answer(CLAIM)
        try:
            taken = self.run(self.replicas[who].claim(QUEUE, limit, suspects=True))
        except BrokerUnavailable:
            return
        self.held[who] |= {delivery.token: delivery for delivery in taken}

    def lose_answer(self, script: Script) -> None:
        self.network.lose_answer_to(script.digest.encode())

    @precondition(lambda self: any(self.held))
    @rule(data=st.data(), lose_answer=st.booleans())
    def settle(self, data: st.DataObject, lose_answer: bool) -> None:
        who = data.draw(st.sampled_from([who for who in (0, 1) if self.held[who]]))
        some = st.sets(st.sampled_from(sorted(self.held[who])), min_size=1, max_size=3)
        deliveries = [self.held[who].pop(token) for token in sorted(data.draw(some))]
        outcomes = [data.draw(outcomes_of(delivery)) for delivery in deliveries]
        if lose_answer:
            self.lose_answer(SETTLE)
        self.run(settle_together(self.replicas[who], deliveries, outcomes))

    @rule(who=REPLICAS)
    def die(self, who: int) -> None:
        """The process is gone; what it held is leased until its leases end."""
        self.held[who] = {}
        self.replicas[who]._link.owner += "x"
        self.run(self.end_leases_but_those_held())

    @rule()
    def stall(self) -> None:
        """All leases end, and the holders do not know."""
        self.run(self.end_leases(()))

    async def end_leases_but_those_held(self) -> None:
        await self.end_leases({token.encode() for held in self.held for token in held})

    async def end_leases(self, spared: Any) -> None:
        for token in await self.probe.waiting(KEYS.leases):
            if token not in spared:
                await self.probe.client.execute("ZADD", KEYS.leases, 1, token)

    @rule()
    def reclaim(self) -> None:
        self.run(self.reclaim_now())

    async def reclaim_now(self) -> None:
        """What a replica does that was never cut off from the broker."""
        await RECLAIM.run(self.probe.client, RECLAIM_KEYS, (100, 0, "now"))

    @rule()
    def restart(self) -> None:
        """One replica stops in an orderly way, and another starts in its place."""
        self.held[0] = {}
        self.run(self.replicas[0].stop())
        self.replicas[0] = self.run(self.probe.replica())

    @rule(who=REPLICAS, limit=st.integers(1, 3))
    def recall(self, who: int, limit: int) -> None:
        self.run(self.replicas[who].recall(QUEUE, "lot", limit))

    @rule()
    def promote_by_both_at_once(self) -> None:
        self.run(promote(self.replicas))

    @invariant()
    def every_request_exists_once(self) -> None:
        if not hasattr(self, "loop"):
            return
        places = self.run(self.places())
        assert places == Counter(f"r-{number + 1}" for number in range(self.submitted))

    async def places(self) -> Counter[str]:
        waiting = await self.probe.waiting(QUEUE)
        retries = await self.probe.waiting("retry-sortedset")
        claims = await self.probe.client.execute("HVALS", KEYS.claims)
        letters = [letter.body for letter in await self.probe.dead_letters()]
        results = [result.decode(body).id for body in await self.probe.results("result-list")]
        parked = await self.probe.waiting(lot_key(QUEUE, "lot"))
        bodies = [*waiting, *retries, *claims, *letters, *parked]
        return Counter([*map(id_of, bodies), *results])

    def teardown(self) -> None:
        if not hasattr(self, "loop"):
            return
        try:
            self.run(self.finish())
            self.every_request_exists_once()
            assert self.run(self.probe.keyspace()).keys() <= {"result-list", "dead-letter-list"}
        finally:
            self.run(self.probe.close())
            self.run(self.network.stop())
            self.loop.close()

    async def finish(self) -> None:
        """All replicas die; a last one brings everything to its end."""
        self.held = [{}, {}]
        await self.end_leases(())
        await self.reclaim_now()
        await promote(self.replicas)
        await self.replicas[0].recall(QUEUE, "lot", 1000)
        while deliveries := await self.replicas[0].claim(QUEUE, 10, suspects=True):
            await settle_together(self.replicas[0], deliveries, [answer(d) for d in deliveries])
        await self.reclaim_now()


def outcomes_of(delivery: Delivery) -> st.SearchStrategy[Outcome]:
    assert isinstance(delivery.message, Envelope)
    again = delivery.message.rewritten(
        retry_count=delivery.message.retry_count + 1, request_queue_name=QUEUE
    )
    return st.sampled_from(
        [
            answer(delivery),
            Retry(body=again, due_at=1.0),
            Release(),
            Release(score=DEADLINE - 1.0),
            Park(lot="lot"),
            Bury(reason="poison"),
        ]
    )


async def settle_together(
    replica: RedisSortedSet, deliveries: Sequence[Delivery], outcomes: Sequence[Outcome]
) -> None:
    calls = [replica.settle(d, outcome) for d, outcome in zip(deliveries, outcomes, strict=True)]
    assert all(isinstance(settled, Settlement) for settled in await asyncio.gather(*calls))


async def promote(replicas: list[RedisSortedSet]) -> None:
    await asyncio.gather(*(replica.promote_retries() for replica in replicas))


def id_of(body: bytes) -> str:
    return read(body).request.id


TestReplicas = Replicas.TestCase
TestReplicas.settings = settings(
    max_examples=50,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
