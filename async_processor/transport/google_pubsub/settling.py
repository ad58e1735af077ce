"""Executes outcomes: first what has to stand is published and confirmed, then the message goes.

An outcome is tried for as long as its lease stands and the service is away; what a dead process
did not get done is done again by whoever gets the message next.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from math import ceil
from typing import Final

from async_processor.clock import Clock
from async_processor.errors import BrokerRefused, BrokerUnavailable
from async_processor.google_io.errors import Invalid
from async_processor.google_io.publisher import Publisher
from async_processor.google_io.values import LONGEST_LEASE, Message, Verdict
from async_processor.telemetry.logs import get_logger
from async_processor.transport.base import (
    Bury,
    Delivery,
    Outcome,
    Park,
    Post,
    Release,
    Retry,
    Settlement,
)
from async_processor.transport.google_pubsub import marks
from async_processor.transport.google_pubsub.leases import FORGIVEN, Lease, Leases
from async_processor.transport.google_pubsub.marks import Marks
from async_processor.transport.google_pubsub.results import Results
from async_processor.transport.google_pubsub.subscription import Withheld, passing

PARKING: Final = 10.0
"""Seconds after which a message that waits for room of its own (a tenant's quota) is looked at
again: Pub/Sub cannot be told to keep it until there is some."""

BURIAL_PATIENCE: Final = 10.0
"""Seconds for which a dead letter is held that its topic refuses; its slot is others' too."""

BURIAL_PAUSE: Final = 60.0
"""Seconds, at most, after which it is tried again."""

LONGEST_PAUSE: Final = 2.0
"""Seconds between two tries while the service is away."""

_log = get_logger(__name__)


class Settling:
    """For the leases of one process."""

    def __init__(
        self, leases: Leases, publisher: Publisher, results: Results, clock: Clock
    ) -> None:
        self._leases = leases
        self._publisher = publisher
        self._results = results
        self._clock = clock

    async def settle(self, delivery: Delivery, outcome: Outcome) -> Settlement:
        """Execute an outcome, once; GONE when the lease is lost."""
        lease = self._leases.find(delivery.token)
        if lease is None or lease.settling:
            return Settlement.GONE
        lease.settling = True
        try:
            return await self._execute(lease, delivery, outcome)
        finally:
            self._leases.drop(lease)

    async def _execute(self, lease: Lease, delivery: Delivery, outcome: Outcome) -> Settlement:
        match outcome:
            case Post():
                return await self._finish(lease, lambda: self._results.post(outcome))
            case Bury():
                return await self._bury(lease, delivery, outcome)
            case Retry(body=body, due_at=due_at):
                return await self._store(lease, body, Marks(due_at=due_at))
            case Release(body=bytes() as body):
                return await self._store(lease, body, Marks(deliveries=lease.deliveries))
            case Release():
                return await self.give_back(lease)
            case Park():
                return await self.give_back(lease, PARKING * random.uniform(0.5, 1))

    async def _bury(self, lease: Lease, delivery: Delivery, bury: Bury) -> Settlement:
        """Two steps, so that a result that cannot be published repeats no dead letter."""
        post = bury.post
        give_up = self._clock.monotonic() + BURIAL_PATIENCE
        steps = [lambda: self._dead_letter(lease, delivery, bury, give_up)]
        if post is not None:
            steps.append(lambda: self._results.post(post))
        try:
            return await self._finish(lease, *steps)
        except BrokerRefused as error:
            _log.error("not_buried", queue_name=delivery.queue_name, error=str(error))
            await self.give_back(lease, BURIAL_PAUSE * random.uniform(0.5, 1))
            return Settlement.GONE

    async def _dead_letter(
        self, lease: Lease, delivery: Delivery, bury: Bury, give_up: float
    ) -> None:
        """Raises BrokerUnavailable for a refusal too, until `give_up` (monotonic seconds)."""
        try:
            await self._results.bury(lease, delivery, bury, self._clock.now())
        except BrokerRefused as error:
            if self._clock.monotonic() >= give_up:
                raise
            raise BrokerUnavailable(str(error)) from error

    async def _finish(self, lease: Lease, *steps: Callable[[], Awaitable[None]]) -> Settlement:
        """Publish one thing after the other, then the message is done with."""
        for publish in steps:
            if not await self._persist(lease, publish):
                return Settlement.GONE
        await self.acknowledge(lease)
        return Settlement.DONE

    async def give_back(self, lease: Lease, delay: float = 0.0) -> Settlement:
        """Let a message be delivered again, `delay` seconds from now at the earliest."""
        if lease.received.attempt > FORGIVEN:
            due_at = self._clock.now() + delay if delay else 0.0
            copied = Marks(deliveries=lease.deliveries, due_at=due_at)
            return await self._store(lease, lease.received.data, copied, otherwise=delay)
        return await self._put_off(lease, delay)

    async def free(self, lease: Lease) -> Settlement:
        """Let a message be delivered again at once, without storing anything."""
        return await self._put_off(lease, 0)

    async def put_off(self, lease: Lease) -> None:
        """Let a copy that is not due yet be delivered when it is."""
        due_at = lease.due_at
        wait = due_at - self._clock.now()
        if lease.received.attempt > FORGIVEN:
            copied = Marks(deliveries=lease.deliveries, due_at=due_at)
            await self._store(lease, lease.received.data, copied, otherwise=wait)
        else:
            await self._put_off(lease, wait)

    async def _store(
        self, lease: Lease, body: bytes, copied: Marks, *, otherwise: float | None = None
    ) -> Settlement:
        """Publish a message anew; where that is refused, its old self comes back in time."""
        subscription = lease.subscription
        own = Marks(
            subscription=subscription.full_name,
            due_at=copied.due_at,
            deliveries=copied.deliveries,
        )
        message = Message(data=body, attributes=marks.marked(lease.received.attributes, own))
        wait = copied.due_at - self._clock.now() if otherwise is None else otherwise
        if not subscription.topic:
            return await self._put_off(lease, wait)
        try:
            return await self._finish(
                lease, lambda: self._publisher.publish(subscription.topic, message)
            )
        except BrokerRefused as error:
            _log.error("message_not_stored", topic=subscription.topic, error=str(error))
            if not isinstance(error, Invalid):
                subscription.copies_refused()
            return await self._put_off(lease, wait)

    async def _put_off(self, lease: Lease, wait: float) -> Settlement:
        """Whole seconds, rounded up, ten minutes at most."""
        seconds = min(max(0, ceil(wait)), LONGEST_LEASE)
        lease.leaving = True
        try:
            verdict = await lease.subscription.modify(lease.received.ack_id, seconds)
        except BrokerUnavailable:
            return Settlement.DONE  # the lease ends by itself, and the message comes back
        return Settlement.GONE if verdict is Verdict.LOST else Settlement.DONE

    async def _persist(self, lease: Lease, publish: Callable[[], Awaitable[None]]) -> bool:
        """Publish while the lease stands; returns whether that succeeded. Raises BrokerRefused."""
        while True:
            try:
                if not await self._leases.stands(lease):
                    return False
                await publish()
            except BrokerUnavailable as error:
                _log.warning("not_published", error=str(error))
                await self._pause()
            else:
                return True

    async def acknowledge(self, lease: Lease) -> None:
        """The message is done with; tried until the service has heard of it, or has refused until
        the lease was over. What was written stands, so it raises nothing."""
        while True:
            try:
                verdict = passing(await lease.subscription.acknowledge(lease.received.ack_id))
            except BrokerUnavailable as error:
                _log.warning("not_acknowledged", error=str(error))
                if isinstance(error, Withheld) and self._leases.over(lease):
                    return
                await self._pause()
                continue
            if verdict is Verdict.LOST:
                _log.warning("acknowledged_too_late", queue_name=lease.subscription.name)
            return

    async def _pause(self) -> None:
        await self._clock.sleep(random.uniform(0.1, LONGEST_PAUSE))
