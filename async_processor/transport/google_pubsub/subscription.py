"""One subscription: what is known about it, and calls about its leases, many in one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from async_processor.errors import BrokerUnavailable
from async_processor.google_io.batches import Batches
from async_processor.google_io.client import PubSubClient
from async_processor.google_io.values import LONGEST_LEASE, Received, SubscriptionFacts, Verdict

UNKNOWN_ACK_DEADLINE: Final = 10
"""Seconds: the shortest that a subscription can have."""

_BATCH: Final = 1000


class Subscription:
    """`name` is that of the configuration, `full_name` Google's.

    `topic` is where copies of its messages are stored, empty where that is not known.
    """

    def __init__(self, client: PubSubClient, name: str, full_name: str, topic: str) -> None:
        self.name = name
        self.full_name = full_name
        self.topic = topic
        self.facts: SubscriptionFacts | None = None
        self._client = client
        self.acknowledge = Batches(self._acknowledge, items=_BATCH)
        """An ack id; says what became of its lease."""
        self._modify = Batches(self._modify_each, items=_BATCH)

    def learn(self, facts: SubscriptionFacts) -> None:
        """Take over how it is set up."""
        self.facts = facts
        self.topic = self.topic or facts.topic

    @property
    def exactly_once(self) -> bool:
        """Whether the service says when a lease is lost."""
        return self.facts is not None and self.facts.exactly_once

    @property
    def ack_deadline(self) -> int:
        """Seconds that a message is leased with its pull."""
        return self.facts.ack_deadline if self.facts else UNKNOWN_ACK_DEADLINE

    async def pull(self, limit: int) -> Sequence[Received]:
        """Lease up to `limit` messages; raises BrokerUnavailable."""
        return await self._client.pull(self.full_name, limit)

    async def modify(self, ack_id: str, seconds: int) -> Verdict:
        """Let a lease end in so many seconds, 600 at most; raises BrokerUnavailable."""
        return await self._modify((ack_id, min(seconds, LONGEST_LEASE)))

    async def _acknowledge(self, ack_ids: Sequence[str]) -> Sequence[Verdict]:
        return await self._client.acknowledge(self.full_name, ack_ids)

    async def _modify_each(self, wishes: Sequence[tuple[str, int]]) -> Sequence[Verdict]:
        """Of several wishes for one lease the last counts."""
        verdicts: dict[str, Verdict] = {}
        last = dict(wishes)
        for seconds in set(last.values()):
            ack_ids = [ack_id for ack_id, wanted in last.items() if wanted == seconds]
            told = await self._client.modify(self.full_name, ack_ids, seconds)
            verdicts.update(zip(ack_ids, told, strict=True))
        return [verdicts[ack_id] for ack_id, _ in wishes]


def passing(verdict: Verdict) -> Verdict:
    """A verdict that stands; raises BrokerUnavailable for one that is to be asked for again."""
    if verdict is Verdict.AGAIN:
        raise BrokerUnavailable("Pub/Sub could not change the lease now")
    return verdict
