"""What this process holds of Pub/Sub's messages, and until when it surely does."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Sequence
from math import ceil
from typing import Final

from async_processor.clock import Clock
from async_processor.google_io.values import Received, Verdict
from async_processor.transport.google_pubsub.marks import Marks, read
from async_processor.transport.google_pubsub.subscription import Subscription, passing

SAFE: Final = 0.25
"""The share of a lease that has to be left for an outcome to be written without renewing it."""

FORGIVEN: Final = 1
"""Delivery attempts that say nothing about lost leases: the message may just have been given
back, or put off until it was due."""


class Lease:
    """One delivery of a message. `ends_at` is in monotonic seconds.

    `settling` says that its outcome is being written, `leaving` that the message is to be delivered
    again at a time of its own: whoever renews leases must not put that off.
    """

    __slots__ = ("ends_at", "leaving", "marks", "received", "settling", "subscription")

    def __init__(self, received: Received, subscription: Subscription, ends_at: float) -> None:
        self.received = received
        self.subscription = subscription
        self.marks: Marks = read(received.attributes)
        self.ends_at = ends_at
        self.settling = False
        self.leaving = False

    @property
    def token(self) -> str:
        """Ack ids are unique in their subscription."""
        return f"{self.subscription.full_name} {self.received.ack_id}"

    @property
    def deliveries(self) -> int:
        """How often the message was delivered before and its lease lost, or one less."""
        return self.marks.deliveries + max(0, self.received.attempt - 1 - FORGIVEN)


class Leases:
    """By token. A lease is in it from its pull until it is settled, given back or lost."""

    def __init__(self, clock: Clock, lease_ttl: float) -> None:
        self._clock = clock
        self._lease_ttl = ceil(lease_ttl)
        self._held: dict[str, Lease] = {}

    def __iter__(self) -> Iterator[Lease]:
        return iter(tuple(self._held.values()))

    def take(
        self, subscription: Subscription, received: Iterable[Received], since: float
    ) -> list[Lease]:
        """Hold what was pulled, by calls that were answered at `since` (monotonic seconds).

        What an answer names a second time is held already.
        """
        ends_at = since + subscription.ack_deadline
        taken = [Lease(one, subscription, ends_at) for one in received]
        fresh = {lease.token: lease for lease in taken if lease.token not in self._held}
        self._held.update(fresh)
        return list(fresh.values())

    def find(self, token: str) -> Lease | None:
        return self._held.get(token)

    def drop(self, lease: Lease) -> None:
        """It is over, whatever came of it."""
        self._held.pop(lease.token, None)

    def differs(self, lease: Lease) -> bool:
        """Whether a pull gives another lease than is wanted: one that ends too early, or one that
        would keep a dead process's messages for too long."""
        facts = lease.subscription.facts
        return facts is None or facts.ack_deadline != self._lease_ttl

    async def extend(self, leases: Sequence[Lease]) -> Collection[str]:
        """Renew leases to a full one from now; returns the tokens of the lost.

        Raises BrokerUnavailable.
        """
        asked_at = self._clock.monotonic()
        verdicts = await asyncio.gather(*map(self._renew, leases))
        lost = set()
        for lease, verdict in zip(leases, verdicts, strict=True):
            if verdict is Verdict.LOST or self._surely_over(lease, asked_at):
                lost.add(lease.token)
                self.drop(lease)
            elif verdict is Verdict.DONE:
                lease.ends_at = asked_at + self._lease_ttl
        return lost

    async def _renew(self, lease: Lease) -> Verdict:
        """What leaves meanwhile is asked for in its turn, after this."""
        if lease.leaving:
            return Verdict.AGAIN
        return await lease.subscription.modify(lease.received.ack_id, self._lease_ttl)

    async def stands(self, lease: Lease) -> bool:
        """Whether an outcome may be written now: nobody else has the message, nor will soon.

        Raises BrokerUnavailable when that must be asked and there is no answer.
        """
        now = self._clock.monotonic()
        if now < lease.ends_at - SAFE * self._lease_ttl:
            return True
        if self._surely_over(lease, now):
            return False
        verdict = passing(await lease.subscription.modify(lease.received.ack_id, self._lease_ttl))
        if verdict is Verdict.LOST:
            return False
        lease.ends_at = now + self._lease_ttl
        return True

    @staticmethod
    def _surely_over(lease: Lease, at: float) -> bool:
        """Without exactly-once delivery nobody says that a lease is lost, but time tells."""
        return at >= lease.ends_at and not lease.subscription.exactly_once
