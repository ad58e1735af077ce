"""What this process holds of Pub/Sub's messages, and until when it surely does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from math import ceil, inf
from typing import Final

from async_processor.clock import Clock
from async_processor.google_io.values import LONGEST_LEASE, Received, Verdict
from async_processor.transport.google_pubsub.marks import Marks, read
from async_processor.transport.google_pubsub.subscription import (
    Subscription,
    Withheld,
    passing,
)
from async_processor.wire import envelope
from async_processor.wire.envelope import Envelope

SAFE: Final = 0.25
"""The share of a lease that has to be left for an outcome to be written without renewing it."""

FORGIVEN: Final = 1
"""Delivery attempts that say nothing about lost leases: the message may just have been given
back, or put off until it was due."""


class Lease:
    """One delivery of a message.

    It stands until `ends_at` at least and is over at `over_at` (monotonic seconds): the service
    gave it somewhere between a pull, which may have waited for the message, and its answer, which
    a frozen process reads late. A renewal counts from when it was sent: whoever took the later
    time for its end would ask once more, and without exactly-once delivery be told that it stands.

    `renewed` says that it has had its full length once, `settling` that its outcome is being
    written, `leaving` that the message is to be delivered again at a time of its own: whoever
    renews leases must not put that off.
    """

    __slots__ = (
        "ends_at",
        "leaving",
        "marks",
        "over_at",
        "received",
        "renewed",
        "settling",
        "subscription",
    )

    def __init__(self, received: Received, subscription: Subscription) -> None:
        self.received = received
        self.subscription = subscription
        self.marks: Marks = read(received.attributes)
        self.ends_at = -inf
        self.over_at = inf
        self.renewed = False
        self.settling = False
        self.leaving = False

    def grant(self, seconds: float, *, asked_at: float, answered_at: float) -> None:
        """The service has given it for so long, somewhere between two times (monotonic)."""
        self.ends_at = asked_at + seconds
        self.over_at = answered_at + seconds

    @property
    def token(self) -> str:
        """Ack ids are unique in their subscription."""
        return f"{self.subscription.full_name} {self.received.ack_id}"

    @property
    def deliveries(self) -> int:
        """How often the message was delivered before and its lease lost, or one less."""
        if not self.subscription.counts:
            return self.marks.deliveries
        return self.marks.deliveries + max(0, self.received.attempt - 1 - FORGIVEN)

    @property
    def due_at(self) -> float:
        """When it may run (Unix seconds): marks are anybody's to write, so at its deadline at the
        latest, and where none can be read soon."""
        marked = self.marks.due_at
        if not marked:
            return 0.0
        message = envelope.examine(self.received.data)
        if isinstance(message, Envelope):
            return min(marked, message.request.deadline)
        return min(marked, self.received.published_at + LONGEST_LEASE)


class Leases:
    """By token. A lease is in it from its pull until it is settled, given back or lost."""

    def __init__(self, clock: Clock, lease_ttl: float) -> None:
        self._clock = clock
        self._lease_ttl = ceil(lease_ttl)
        self._held: dict[str, Lease] = {}

    def __iter__(self) -> Iterator[Lease]:
        return iter(tuple(self._held.values()))

    def take(
        self, subscription: Subscription, received: Iterable[Received], asked_at: float
    ) -> list[Lease]:
        """Hold what was pulled, by a call that was sent at `asked_at` (monotonic seconds).

        What an answer names a second time is held already.
        """
        now = self._clock.monotonic()
        taken = [Lease(one, subscription) for one in received]
        fresh = {lease.token: lease for lease in taken if lease.token not in self._held}
        for lease in fresh.values():
            lease.grant(subscription.ack_deadline, asked_at=asked_at, answered_at=now)
        self._held.update(fresh)
        return list(fresh.values())

    def find(self, token: str) -> Lease | None:
        return self._held.get(token)

    def drop(self, lease: Lease) -> None:
        """It is over, whatever came of it."""
        self._held.pop(lease.token, None)

    def differs(self, lease: Lease) -> bool:
        """Whether a pull gave another lease than is wanted: one that ends, or may end, too early,
        or one that would keep a dead process's messages for too long."""
        facts = lease.subscription.facts
        wanted = facts is not None and facts.ack_deadline == self._lease_ttl
        return not wanted or not self._surely_stands(lease)

    async def extend(self, leases: Sequence[Lease]) -> None:
        """Renew leases to a full one from now, and drop the lost.

        Raises BrokerUnavailable where some could not be renewed, after the others were.
        """
        asked_at = self._clock.monotonic()
        answers = await asyncio.gather(*map(self._renew, leases), return_exceptions=True)
        for lease, answer in zip(leases, answers, strict=True):
            if answer is Verdict.LOST or self._surely_over(lease, asked_at):
                self.drop(lease)
            elif answer is Verdict.DONE:
                self._granted(lease, asked_at)
        for failure in answers:
            if isinstance(failure, BaseException):
                raise failure

    async def _renew(self, lease: Lease) -> Verdict:
        """What leaves meanwhile is asked for in its turn, after this."""
        if lease.leaving:
            return Verdict.AGAIN
        return await lease.subscription.modify(lease.received.ack_id, self._lease_ttl)

    async def stands(self, lease: Lease) -> bool:
        """Whether an outcome may be written now: nobody else has the message, nor will soon.

        Raises BrokerUnavailable when that must be asked and there is no answer.
        """
        while not self._surely_stands(lease):
            asked_at = self._clock.monotonic()
            if self._surely_over(lease, asked_at):
                return False
            try:
                answer = await lease.subscription.modify(lease.received.ack_id, self._lease_ttl)
            except Withheld:
                if self.over(lease):
                    return False
                raise
            if passing(answer) is Verdict.LOST:
                return False
            self._granted(lease, asked_at)
        return True

    def _granted(self, lease: Lease, asked_at: float) -> None:
        """It was renewed, to its full length."""
        lease.grant(self._lease_ttl, asked_at=asked_at, answered_at=asked_at)
        lease.renewed = True

    def _surely_stands(self, lease: Lease) -> bool:
        return self._clock.monotonic() < lease.ends_at - SAFE * self._lease_ttl

    def short(self, lease: Lease) -> bool:
        """Whether it still waits for its full length, and may get it."""
        held = self._held.get(lease.token) is lease and not lease.leaving
        return held and not lease.renewed and not self.over(lease)

    def over(self, lease: Lease) -> bool:
        """Whether it has ended by this process's clock."""
        return self._clock.monotonic() >= lease.over_at

    @staticmethod
    def _surely_over(lease: Lease, at: float) -> bool:
        """Without exactly-once delivery nobody says that a lease is lost, but time tells."""
        return at >= lease.over_at and not lease.subscription.exactly_once
