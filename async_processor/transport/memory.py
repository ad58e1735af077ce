"""The in-process transport: the same promises as any other, kept without a server."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from uuid import uuid4

from async_processor.clock import Clock
from async_processor.transport.age import age
from async_processor.transport.base import (
    Backlog,
    Bury,
    Delivery,
    Outcome,
    Park,
    Post,
    Release,
    Retry,
    Settlement,
)
from async_processor.transport.memory_broker import MemoryBroker
from async_processor.transport.memory_queue import Lease, Message
from async_processor.transport.settings import MemorySettings
from async_processor.wire import dead_letter, envelope, result
from async_processor.wire.envelope import Envelope
from async_processor.wire.names import active_key, cancel_key


class MemoryTransport:
    """One replica's connection to a `MemoryBroker`; replicas that share one compete for work."""

    def __init__(self, settings: MemorySettings, broker: MemoryBroker | None = None) -> None:
        self._settings = settings
        self._broker = broker or MemoryBroker()
        self._owner = uuid4().hex

    @property
    def clock(self) -> Clock:
        return self._broker.clock

    async def start(self) -> None:
        """There is nothing to connect to."""

    async def stop(self) -> None:
        for queue in self._broker.queues():
            for message in queue.end_owned(self._owner):
                queue.add(message)

    async def ping(self) -> None:
        """A broker in this process always answers."""

    async def claim(self, queue_name: str, limit: int, *, suspects: bool) -> Sequence[Delivery]:
        return self._leased(
            queue_name, self._broker.queue(queue_name).take(limit, suspects=suspects)
        )

    async def claim_expired(self, queue_name: str, limit: int) -> Sequence[Delivery]:
        queue, now = self._broker.queue(queue_name), self.clock.now()
        for message in self._broker.lots(queue_name).take_expired(limit, now):
            queue.add(message)
        return self._leased(queue_name, queue.take_expired(limit, now))

    def _leased(self, queue_name: str, messages: Iterable[Message]) -> list[Delivery]:
        return [self._lease(queue_name, message) for message in messages]

    def _lease(self, queue_name: str, message: Message) -> Delivery:
        now, token = self.clock.now(), uuid4().hex
        lease = Lease(message=message, owner=self._owner, expires_at=now + self._settings.lease_ttl)
        self._broker.queue(queue_name).lease(token, lease)
        return Delivery(
            queue_name=queue_name,
            token=token,
            body=message.body,
            score=message.score,
            deliveries=message.deliveries,
            claimed_at=now,
            message=envelope.examine(message.body),
        )

    async def settle(self, delivery: Delivery, outcome: Outcome) -> Settlement:
        message = self._broker.queue(delivery.queue_name).end_lease(delivery.token)
        if message is None:
            return Settlement.GONE
        self._execute(delivery, message, outcome)
        return Settlement.DONE

    def _execute(self, delivery: Delivery, message: Message, outcome: Outcome) -> None:
        match outcome:
            case Post():
                self._post(delivery, outcome)
            case Retry():
                self._broker.retry_later(delivery.queue_name, outcome.body, outcome.due_at)
            case Release():
                message.release_as(outcome.body, outcome.score)
                self._broker.queue(delivery.queue_name).add(message)
            case Park(lot=lot):
                self._broker.lots(delivery.queue_name).park(lot, message)
            case Bury():
                self._bury(delivery, outcome)

    def _post(self, delivery: Delivery, post: Post) -> None:
        self._broker.push(post.result_queue, result.encode(post.result), post.expires_after)
        self._forget(delivery)

    def _bury(self, delivery: Delivery, bury: Bury) -> None:
        letter = dead_letter.encode(
            delivery.body,
            reason=bury.reason,
            queue_name=delivery.queue_name,
            buried_at=self.clock.now(),
            deliveries=delivery.deliveries,
        )
        self._broker.push(self._settings.dead_letter_queue_name, letter)
        if bury.post is not None:
            self._post(delivery, bury.post)

    def _forget(self, delivery: Delivery) -> None:
        """Clean the request's keys, if they still name this generation of its id."""
        if not delivery.request_token:
            return
        for key in (active_key(delivery.request_id), cancel_key(delivery.request_id)):
            if self._broker.get_key(key) == delivery.request_token.encode():
                self._broker.delete_key(key)
        if delivery.payload_ref:
            self._broker.delete_key(delivery.payload_ref)

    async def extend(self, deliveries: Sequence[Delivery]) -> Collection[str]:
        expires_at = self.clock.now() + self._settings.lease_ttl
        return [
            delivery.token
            for delivery in deliveries
            if not self._broker.queue(delivery.queue_name).extend(delivery.token, expires_at)
        ]

    async def reclaim(self, queue_name: str) -> int:
        queue = self._broker.queue(queue_name)
        lost = queue.end_expired(self.clock.now())
        for message in lost:
            message.deliveries += 1
            queue.add(message)
        return len(lost)

    async def promote_retries(self) -> float | None:
        while (retry := self._broker.due_retry()) is not None:
            queue_name, body = retry
            self._broker.submit(queue_name, body, self._score(body))
        return self._broker.next_retry()

    def _score(self, body: bytes) -> float:
        """A message's own deadline; one that cannot be read is due at once, to be buried."""
        message = envelope.examine(body)
        return message.score if isinstance(message, Envelope) else self.clock.now()

    async def next_expiry(self, queue_name: str) -> float | None:
        first = self._broker.queue(queue_name).first(suspects=True)
        waiting = [first] if first else []
        parked = self._broker.lots(queue_name).parked()
        return min((message.score for message in (*waiting, *parked)), default=None)

    async def trim_dead_letters(self, limit: int) -> int:
        return self._broker.trim(self._settings.dead_letter_queue_name, limit)

    async def lots(self, queue_name: str) -> Sequence[str]:
        return self._broker.lots(queue_name).names

    async def recall(self, queue_name: str, lot: str, limit: int) -> int:
        recalled = self._broker.lots(queue_name).take(lot, limit)
        for message in recalled:
            self._broker.queue(queue_name).add(message)
        return len(recalled)

    async def wait_for_work(self, queue_name: str, timeout: float) -> bool:
        filled = asyncio.ensure_future(self._broker.queue(queue_name).filled.wait())
        alarm = asyncio.ensure_future(self.clock.sleep(timeout))
        try:
            await asyncio.wait({filled, alarm}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            alarm.cancel()
            held_one = not filled.cancel()
        return held_one

    async def cancelled(self, deliveries: Sequence[Delivery]) -> Collection[str]:
        return [delivery.token for delivery in deliveries if self._is_cancelled(delivery)]

    def _is_cancelled(self, delivery: Delivery) -> bool:
        token = delivery.request_token
        return bool(token) and (
            self._broker.get_key(cancel_key(delivery.request_id)) == token.encode()
        )

    async def stored_payload(self, delivery: Delivery) -> bytes | None:
        return self._broker.get_key(delivery.payload_ref) if delivery.payload_ref else None

    async def backlog(self, queue_name: str, bounds_ms: Sequence[int]) -> Backlog:
        queue, now = self._broker.queue(queue_name), self.clock.now()
        waiting = [message.score for message in queue.waiting()]
        parked = [message.score for message in self._broker.lots(queue_name).parked()]
        scores = sorted(waiting + parked)
        first = queue.first(suspects=True)
        within = [bisect_right(scores, now + bound / 1000) for bound in bounds_ms]
        return Backlog(
            waiting=len(waiting),
            parked=len(parked),
            leased=queue.leased,
            retries_due=self._broker.retries(queue_name),
            dead_letters=len(self._broker.items(self._settings.dead_letter_queue_name)),
            oldest_deadline=scores[0] if scores else None,
            oldest_age=age(first.body, now) if first else None,
            deadlines=(*within, len(scores)),
        )
