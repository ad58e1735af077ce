"""Under any interleaving of two replicas every request is in exactly one place: waiting, parked,
leased, due for retry, or ended; and no request ends twice."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from async_processor.testing.clock import ManualClock
from async_processor.testing.messages import message
from async_processor.testing.stage import QUEUE, RESULTS, answer
from async_processor.transport.base import (
    SUSPECT_AFTER,
    Bury,
    Delivery,
    Outcome,
    Park,
    Release,
    Retry,
    Settlement,
)
from async_processor.transport.memory import MemoryTransport
from async_processor.transport.memory_broker import MemoryBroker
from async_processor.transport.settings import MemorySettings
from async_processor.wire import dead_letter, result
from async_processor.wire.envelope import Envelope, read

LEASE = 10.0
T = TypeVar("T")

replicas = st.integers(min_value=0, max_value=1)
picks = st.integers(min_value=0, max_value=5)
"""Counted from the last claim: what happened lately is what mostly stands."""
lots = st.sampled_from(["lot-a", "lot-b"])


def run(work: Coroutine[Any, Any, T]) -> T:
    """The end of a coroutine that does not wait: the memory transport never has to."""
    try:
        work.send(None)
    except StopIteration as done:
        ended: T = done.value
        return ended
    raise AssertionError("the memory transport waited")


class TwoReplicas(RuleBasedStateMachine):
    """Beside the broker it keeps what it should hold: each lease's end, each id's deliveries."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.broker = MemoryBroker(self.clock)
        self.replicas = [
            MemoryTransport(MemorySettings(lease_ttl=LEASE), self.broker) for _ in range(2)
        ]
        self.submitted: list[str] = []
        self.leases: dict[str, float] = {}
        self.holders: dict[str, int] = {}
        self.lost: dict[str, int] = {}
        self.claimed: list[Delivery] = []

    @rule(seconds=st.integers(min_value=-5, max_value=60), count=st.integers(1, 3))
    def submit(self, seconds: int, count: int) -> None:
        for seq in range(count):
            self._submit(seconds, seq)

    def _submit(self, seconds: int, seq: int) -> None:
        request_id = f"r-{len(self.submitted)}"
        body = message(request_id, deadline=self.clock.now() + seconds, token="t", seq=seq)
        self.submitted.append(request_id)
        self.lost[request_id] = 0
        self.broker.submit(QUEUE, body, read(body).score)

    @rule(replica=replicas, limit=st.integers(1, 4), suspects=st.booleans())
    def claim(self, replica: int, limit: int, suspects: bool) -> None:
        deliveries = run(self.replicas[replica].claim(QUEUE, limit, suspects=suspects))
        found = sum(delivery.deliveries >= SUSPECT_AFTER for delivery in deliveries)
        assert found <= suspects
        self._note_claims(replica, limit, deliveries)

    @rule(replica=replicas, limit=st.integers(1, 4))
    def claim_expired(self, replica: int, limit: int) -> None:
        deliveries = run(self.replicas[replica].claim_expired(QUEUE, limit))
        assert all(delivery.score <= self.clock.now() for delivery in deliveries)
        self._note_claims(replica, limit, deliveries)

    def _note_claims(self, replica: int, limit: int, deliveries: Any) -> None:
        assert len(deliveries) <= limit
        scores = [delivery.score for delivery in deliveries]
        assert scores == sorted(scores)
        for delivery in deliveries:
            assert delivery.deliveries == self.lost[delivery.request_id]
            self.leases[delivery.token] = self.clock.now() + LEASE
            self.holders[delivery.token] = replica
            self.claimed.append(delivery)

    def _picked(self, pick: int) -> Delivery:
        return self.claimed[-1 - pick % len(self.claimed)]

    def _settle(self, replica: int, pick: int, make: Any) -> bool:
        delivery = self._picked(pick)
        outcome: Outcome = make(delivery)
        settled = run(self.replicas[replica].settle(delivery, outcome))
        stood = self.leases.pop(delivery.token, None) is not None
        assert settled is (Settlement.DONE if stood else Settlement.GONE)
        if stood and isinstance(outcome, Retry):
            self.lost[delivery.request_id] = 0
        return stood

    @precondition(lambda self: self.claimed)
    @rule(replica=replicas, pick=picks)
    def post(self, replica: int, pick: int) -> None:
        self._settle(replica, pick, answer)

    @precondition(lambda self: self.claimed)
    @rule(replica=replicas, pick=picks, posts=st.booleans())
    def bury(self, replica: int, pick: int, posts: bool) -> None:
        self._settle(
            replica,
            pick,
            lambda delivery: Bury(reason="poison", post=answer(delivery) if posts else None),
        )

    @precondition(lambda self: self.claimed)
    @rule(replica=replicas, pick=picks, score=st.none() | st.integers(-5, 60))
    def release(self, replica: int, pick: int, score: int | None) -> None:
        moved = None if score is None else self.clock.now() + score
        self._settle(replica, pick, lambda delivery: Release(score=moved))

    @precondition(lambda self: self.claimed)
    @rule(replica=replicas, pick=picks, lot=lots)
    def park(self, replica: int, pick: int, lot: str) -> None:
        self._settle(replica, pick, lambda _: Park(lot=lot))

    @rule(replica=replicas, lot=lots, limit=st.integers(1, 3))
    def recall(self, replica: int, lot: str, limit: int) -> None:
        parked = run(self.replicas[replica].backlog(QUEUE, ())).parked
        recalled = run(self.replicas[replica].recall(QUEUE, lot, limit))
        assert recalled <= limit
        assert run(self.replicas[replica].backlog(QUEUE, ())).parked == parked - recalled

    @precondition(lambda self: self.claimed)
    @rule(replica=replicas, pick=picks, wait=st.integers(0, 20))
    def retry(self, replica: int, pick: int, wait: int) -> None:
        self._settle(
            replica, pick, lambda delivery: Retry(body=_next(delivery), due_at=self._in(wait))
        )

    def _in(self, seconds: float) -> float:
        return self.clock.now() + seconds

    @precondition(lambda self: self.claimed)
    @rule(replica=replicas, chosen=st.lists(picks, max_size=4))
    def extend(self, replica: int, chosen: list[int]) -> None:
        deliveries = [self._picked(pick) for pick in chosen]
        lost = set(run(self.replicas[replica].extend(deliveries)))
        assert lost == {one.token for one in deliveries} - set(self.leases)
        for delivery in deliveries:
            if delivery.token not in lost:
                self.leases[delivery.token] = self.clock.now() + LEASE

    @rule(seconds=st.sampled_from([1, LEASE / 2 + 1, LEASE]))
    def let_time_pass(self, seconds: float) -> None:
        self.clock.synchronise(self.clock.now() + seconds)

    @rule(replica=replicas, limit=st.integers(1, 4), suspects=st.booleans())
    def crash(self, replica: int, limit: int, suspects: bool) -> None:
        self.claim(replica, limit, suspects)
        self.let_time_pass(LEASE)
        self.reclaim(replica)

    @precondition(lambda self: self.leases)
    @rule(replica=replicas)
    def keep_all(self, replica: int) -> None:
        """What a replica's keeper of leases does: renew, before they end."""
        held = [one for one in self.claimed if one.token in self.leases]
        assert not run(self.replicas[replica].extend(held))
        self.leases = dict.fromkeys(self.leases, self.clock.now() + LEASE)

    @rule(replica=replicas)
    def reclaim(self, replica: int) -> None:
        ended = [token for token, end in self.leases.items() if end <= self.clock.now()]
        assert run(self.replicas[replica].reclaim(QUEUE)) == len(ended)
        for token in ended:
            del self.leases[token]
            self.lost[self._id_of(token)] += 1

    def _id_of(self, token: str) -> str:
        return next(one.request_id for one in self.claimed if one.token == token)

    @rule(replica=replicas)
    def promote(self, replica: int) -> None:
        due = run(self.replicas[replica].promote_retries())
        assert due is None or due > self.clock.now()

    @rule(replica=replicas)
    def stop(self, replica: int) -> None:
        run(self.replicas[replica].stop())
        for token in [token for token in self.leases if self.holders[token] == replica]:
            del self.leases[token]

    @invariant()
    def every_request_is_in_one_place(self) -> None:
        backlog = run(self.replicas[0].backlog(QUEUE, ()))
        assert backlog.leased == len(self.leases)
        posted = [result.decode(item).id for item in self.broker.items(RESULTS)]
        buried = [_id(dead_letter.decode(item).body) for item in self.broker.items(_DEAD)]
        assert len(set(posted)) == len(posted)
        assert len(set(buried)) == len(buried)
        ended = set(posted) | set(buried)
        waiting = {_id(one.body) for one in self.broker.queue(QUEUE).waiting()}
        waiting |= {_id(one.body) for one in self.broker.lots(QUEUE).parked()}
        leased = {self._id_of(token) for token in self.leases}
        assert len(waiting | leased | ended) == len(waiting) + len(leased) + len(ended)
        places = backlog.waiting + backlog.parked + backlog.leased + backlog.retries_due
        places += len(ended)
        assert places == len(self.submitted)


_DEAD = "dead-letter-list"


def _id(body: bytes) -> str:
    return read(body).request.id


def _next(delivery: Delivery) -> bytes:
    assert isinstance(delivery.message, Envelope)
    count = delivery.message.retry_count + 1
    return delivery.message.rewritten(retry_count=count, request_queue_name=QUEUE)


TestTwoReplicas = TwoReplicas.TestCase
TestTwoReplicas.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
