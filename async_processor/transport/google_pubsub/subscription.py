"""One subscription: what is known about it, and calls about its leases, many in one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from async_processor.errors import BrokerRefused, BrokerUnavailable
from async_processor.google_io.batches import Batches
from async_processor.google_io.client import PubSubClient
from async_processor.google_io.values import LONGEST_LEASE, Received, SubscriptionFacts, Verdict

UNKNOWN_ACK_DEADLINE: Final = 10
"""Seconds: the shortest that a subscription can have."""

DELETED: Final = "_deleted-topic_"
"""What Pub/Sub calls the topic of a subscription whose topic is gone."""

_BATCH: Final = 1000


class Withheld(BrokerUnavailable):
    """The subscription refuses now; rights may be granted and subscriptions made again."""


class Subscription:
    """`name` is that of the configuration, `full_name` Google's.

    `topic` is where copies of its messages are stored, empty where that is not known.
    `refusal` says why its last pull was refused, and is empty when it was not.
    """

    def __init__(self, client: PubSubClient, name: str, full_name: str, topic: str) -> None:
        self.name = name
        self.full_name = full_name
        self.topic = topic
        self.facts: SubscriptionFacts | None = None
        self.refusal = ""
        self._keeps_copies = True
        self._client = client
        self.acknowledge = Batches(self._acknowledge, items=_BATCH)
        """An ack id; says what became of its lease. Raises like `modify`."""
        self._modify = Batches(self._modify_each, items=_BATCH)

    def learn(self, facts: SubscriptionFacts) -> None:
        """Take over how it is set up."""
        self.facts = facts
        self.topic = "" if facts.topic == DELETED else facts.topic

    def copies_refused(self) -> None:
        """Nothing can be published to its topic: what is retried comes back by itself."""
        self._keeps_copies = False

    @property
    def counts(self) -> bool:
        """Whether attempts are lost leases: where no copy can be stored, a retry is one too."""
        return self._keeps_copies and bool(self.topic)

    @property
    def dead_letter_topic(self) -> str:
        """That of its dead-letter policy, "" where there is none or it is not known."""
        return self.facts.dead_letter_topic if self.facts else ""

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
        try:
            with _withheld():
                received = await self._client.pull(self.full_name, limit)
        except Withheld as error:
            self.refusal = str(error)
            raise
        self.refusal = ""
        return received

    async def modify(self, ack_id: str, seconds: int) -> Verdict:
        """Let a lease end in so many seconds, 600 at most.

        Raises BrokerUnavailable, `Withheld` when it is refused.
        """
        return await self._modify((ack_id, min(seconds, LONGEST_LEASE)))

    async def _acknowledge(self, ack_ids: Sequence[str]) -> Sequence[Verdict]:
        with _withheld():
            return await self._client.acknowledge(self.full_name, ack_ids)

    async def _modify_each(self, wishes: Sequence[tuple[str, int]]) -> Sequence[Verdict]:
        """Of several wishes for one lease the last counts."""
        verdicts: dict[str, Verdict] = {}
        last = dict(wishes)
        for seconds in set(last.values()):
            ack_ids = [ack_id for ack_id, wanted in last.items() if wanted == seconds]
            with _withheld():
                told = await self._client.modify(self.full_name, ack_ids, seconds)
            verdicts.update(zip(ack_ids, told, strict=True))
        return [verdicts[ack_id] for ack_id, _ in wishes]


@contextmanager
def _withheld() -> Iterator[None]:
    try:
        yield
    except BrokerRefused as error:
        raise Withheld(str(error)) from error


def passing(verdict: Verdict) -> Verdict:
    """A verdict that stands; raises BrokerUnavailable for one that is to be asked for again."""
    if verdict is Verdict.AGAIN:
        raise BrokerUnavailable("Pub/Sub could not change the lease now")
    return verdict
