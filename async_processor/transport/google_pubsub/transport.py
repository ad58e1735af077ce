"""The transport over Pub/Sub; the promises are told in the package's docstring."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final

from async_processor.clock import Clock, SystemClock
from async_processor.errors import BrokerRefused, BrokerUnavailable
from async_processor.google_io.client import LOOK_TIMEOUT, PubSubClient
from async_processor.google_io.errors import Denied
from async_processor.google_io.monitoring import Monitor
from async_processor.google_io.publisher import Publisher
from async_processor.telemetry.logs import get_logger
from async_processor.transport.base import Backlog, Delivery, Outcome, Settlement
from async_processor.transport.google_pubsub import marks
from async_processor.transport.google_pubsub.depths import Depths
from async_processor.transport.google_pubsub.hand import Hand
from async_processor.transport.google_pubsub.leases import Lease, Leases
from async_processor.transport.google_pubsub.partings import Partings
from async_processor.transport.google_pubsub.results import Results
from async_processor.transport.google_pubsub.settling import Settling
from async_processor.transport.google_pubsub.subscription import Subscription
from async_processor.transport.google_pubsub.subscriptions import Subscriptions
from async_processor.transport.settings import PubSubSettings
from async_processor.wire import pubsub_names as names

RECENT: Final = 2.0
"""Seconds for which an answer of the service proves that it can be reached."""

LONGEST_PAUSE: Final = 0.5
"""Seconds between two tries to renew a lease that may be short."""

STOP_TIMEOUT: Final = 10.0
"""Seconds for outcomes to be written, and leases to be freed, when the process stops."""

_log = get_logger(__name__)


class GooglePubSub:
    """One process's claims. `topics` says, by subscription, where its messages are published, as
    far as the configuration does."""

    def __init__(
        self,
        settings: PubSubSettings,
        topics: Mapping[str, str],
        *,
        client: PubSubClient | None = None,
        monitor: Monitor | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._client = client or PubSubClient(self._clock)
        publisher = Publisher(self._client)
        self._results = Results(
            publisher,
            settings.project_id,
            default=settings.result_topic_id,
            dead_letters=settings.dead_letter_topic_id,
        )
        self._leases = Leases(self._clock, settings.lease_ttl)
        self._settling = Settling(self._leases, publisher, self._results, self._clock)
        if monitor is None and not self._client.emulated:
            monitor = Monitor()
        self._depths = Depths(monitor, self._clock)
        self._subscriptions = Subscriptions(
            self._client, settings, topics, self._results, self._clock
        )
        self._partings = Partings(self._leases, self._clock)
        self._hands: dict[str, Hand] = {}
        self._running = False

    @property
    def clock(self) -> Clock:
        """This machine's: Pub/Sub tells no time."""
        return self._clock

    async def start(self) -> None:
        await self._client.open()
        self._running = True
        await self._subscriptions.find_all()

    async def stop(self) -> None:
        if not self._running:
            return
        self._running = False
        await asyncio.gather(*(hand.close() for hand in self._hands.values()))
        for lease in self._leases:
            if not lease.settling:
                self._partings.end(lease, self._settling.free(lease))
        await self._partings.done(STOP_TIMEOUT)
        await self._depths.close()
        await self._client.close()

    async def ping(self) -> None:
        """A call that was answered just now will do, and so does an answer that forbids to look.

        A service that lets nothing be pulled, or no result be published, is as good as away.
        """
        if not self._running:
            raise BrokerUnavailable("not connected to Pub/Sub yet")
        if refusal := self._subscriptions.refusal() or self._results.refusal:
            raise BrokerUnavailable(refusal)
        if self._clock.monotonic() - self._client.heard_at < RECENT:
            return
        try:
            await self._client.subscription(next(self._subscriptions.full_names()), LOOK_TIMEOUT)
        except Denied:
            return
        except BrokerRefused as error:
            raise BrokerUnavailable(str(error)) from error

    async def claim(self, queue_name: str, limit: int, *, suspects: bool) -> Sequence[Delivery]:
        hand = await self._hand(queue_name)
        leases = await hand.take(limit, suspects=suspects)
        others = [lease for lease in leases if self._leases.differs(lease)]
        if others:
            self._partings.spawn(self._set(others))
        return [self._delivery(lease) for lease in leases]

    async def _hand(self, queue_name: str) -> Hand:
        hand = self._hands.get(queue_name)
        if hand is None:
            try:
                subscription = await self._subscriptions.find(queue_name)
            except BrokerRefused as error:
                raise BrokerUnavailable(str(error)) from error
            made = Hand(partial(self._pull, subscription), self._return)
            hand = self._hands.setdefault(queue_name, made)
        return hand

    async def _pull(self, subscription: Subscription, limit: int) -> Sequence[Lease]:
        """What is to be run; the rest of what came is dealt with on the way."""
        try:
            await self._subscriptions.look_again(subscription)
        except BrokerRefused as error:
            raise BrokerUnavailable(str(error)) from error
        asked_at = self._clock.monotonic()
        received = await subscription.pull(limit)
        leases = self._leases.take(subscription, received, asked_at)
        return [lease for lease in leases if self._is_due(lease)]

    def _is_due(self, lease: Lease) -> bool:
        meant, here = lease.marks.subscription, lease.subscription
        if lease.marks.is_copy and not names.same(meant, here.full_name):
            _log.info("copy_of_another_subscription", queue_name=here.name, meant=marks.cut(meant))
            self._partings.end(lease, self._settling.acknowledge(lease))
            return False
        if lease.due_at > self._clock.now():
            self._partings.end(lease, self._settling.put_off(lease))
            return False
        return True

    def _return(self, leases: Sequence[Lease], delay: float) -> None:
        for lease in leases:
            self._partings.end(lease, self._settling.give_back(lease, delay))

    async def _set(self, leases: Sequence[Lease]) -> None:
        """Give leases their full length before they end: whoever keeps them may come too late."""
        while leases:
            await self._extend(leases)
            leases = [lease for lease in leases if self._leases.short(lease)]
            if leases:
                await self._clock.sleep(random.uniform(0.1, LONGEST_PAUSE))

    async def _extend(self, leases: Sequence[Lease]) -> None:
        """As far as the service lets it: trouble with some leases is none of the others'."""
        try:
            await self._leases.extend(leases)
        except BrokerUnavailable as error:
            _log.warning("leases_not_extended", error=str(error))

    def _delivery(self, lease: Lease) -> Delivery:
        received, now = lease.received, self._clock.now()
        message = marks.examine(received.data, received.attributes)
        return Delivery(
            queue_name=lease.subscription.name,
            token=lease.token,
            body=received.data,
            score=getattr(message, "score", now),
            deliveries=lease.deliveries,
            claimed_at=now,
            message=message,
            published_at=None if lease.marks.is_copy else received.published_at,
        )

    async def claim_expired(self, queue_name: str, limit: int) -> Sequence[Delivery]:
        """Nothing: what waits in Pub/Sub is not seen until it is claimed."""
        del queue_name, limit
        return ()

    async def settle(self, delivery: Delivery, outcome: Outcome) -> Settlement:
        return await self._settling.settle(delivery, outcome)

    async def extend(self, deliveries: Sequence[Delivery]) -> Collection[str]:
        tokens = [one.token for one in deliveries]
        await self._extend([lease for token in tokens if (lease := self._leases.find(token))])
        return {token for token in tokens if self._leases.find(token) is None}

    async def reclaim(self, queue_name: str) -> int:
        """Nothing to do: Pub/Sub delivers again what nobody holds."""
        del queue_name
        return 0

    async def promote_retries(self) -> float | None:
        """Nothing to do: Pub/Sub delivers a retry when its lease ends, which is when it is due."""
        return None

    async def trim_dead_letters(self, limit: int) -> int:
        """Nothing to do: a topic forgets by itself."""
        del limit
        return 0

    async def lots(self, queue_name: str) -> Sequence[str]:
        """None: what is parked comes back by itself after a while."""
        del queue_name
        return ()

    async def recall(self, queue_name: str, lot: str, limit: int) -> int:
        del queue_name, lot, limit
        return 0

    async def next_expiry(self, queue_name: str) -> float | None:
        """Unknown: what waits in Pub/Sub is not seen until it is claimed."""
        del queue_name
        return None

    async def wait_for_work(self, queue_name: str, timeout: float) -> bool:
        return await (await self._hand(queue_name)).wait(timeout)

    async def cancelled(self, deliveries: Sequence[Delivery]) -> Collection[str]:
        """None: there is no place where senders could say so."""
        del deliveries
        return ()

    async def stored_payload(self, delivery: Delivery) -> bytes | None:
        """None: a payload comes with its message."""
        del delivery
        return None

    async def backlog(self, queue_name: str, bounds_ms: Sequence[int]) -> Backlog:
        """What runs is counted too, and how far the deadlines are is unknown."""
        del bounds_ms
        return await self._depths.read(names.subscription(queue_name, self._settings.project_id))
