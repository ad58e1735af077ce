"""The Redis sorted-set transport: `Transport` (see there) put together from its parts."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from async_processor.clock import Clock, SystemClock
from async_processor.errors import BrokerRefused, BrokerUnavailable
from async_processor.redis_io.client import Command
from async_processor.redis_io.confirming import require_replicas
from async_processor.redis_io.keys import queue_keys
from async_processor.redis_io.scripts import COUNT, FIRST, TRIM
from async_processor.telemetry.logs import get_logger
from async_processor.transport.age import MOST_BYTES, age
from async_processor.transport.base import Backlog, Delivery, Outcome, Settlement
from async_processor.transport.redis_sorted_set import leases, parking, reclaiming, stranded
from async_processor.transport.redis_sorted_set.claiming import QueueClaims
from async_processor.transport.redis_sorted_set.link import Link
from async_processor.transport.redis_sorted_set.refusals import passing
from async_processor.transport.redis_sorted_set.retries import Retries
from async_processor.transport.redis_sorted_set.settling import QueueSettlements
from async_processor.transport.redis_sorted_set.watching import Watcher
from async_processor.transport.settings import RedisSettings
from async_processor.wire.names import cancel_key

CLAIM_BYTES: Final = 16 * 2**20
"""How much one claim takes by default, in bytes."""
_PING_SECONDS: Final = 3.0
_KEYS_AT_ONCE: Final = 500
_FLUSH_SHARE: Final = 0.75
"""Of the time to stop; the rest is for giving leases back."""

_log = get_logger(__name__)


class RedisSortedSet:
    """One replica's connection to its queues.

    `queue_names` are checked at start and freed at stop; other queues work too. When the broker is
    away or hangs, `stop` takes about `stop_timeout` seconds, most of it for what is to be settled.
    """

    def __init__(
        self,
        settings: RedisSettings,
        queue_names: Iterable[str] = (),
        *,
        clock: Clock | None = None,
        claim_bytes: int = CLAIM_BYTES,
        stop_timeout: float = 5.0,
    ) -> None:
        self._clock = clock or SystemClock()
        self._settings = settings
        self._queue_names = tuple(queue_names)
        self._claim_bytes = claim_bytes
        self._stop_timeout = stop_timeout
        self._link = Link(settings, self._clock)
        self._claims: dict[str, QueueClaims] = {}
        self._settlements: dict[str, QueueSettlements] = {}
        self._watcher = Watcher(self._link)
        self._retries = Retries(self._link, self._queue_names)
        self._stranded: dict[str, int] = {}
        """Letters that were stranded at each queue when its backlog was read last."""
        self._started = False

    @property
    def clock(self) -> Clock:
        return self._clock

    @property
    def owner(self) -> str:
        """What the tokens of this process's claims begin with."""
        return self._link.owner

    async def start(self) -> None:
        if self._started:
            return
        await self._link.open(self._queue_names)
        self._watcher.start()
        self._started = True

    async def stop(self) -> None:
        if self._started:
            self._started = False
            end = asyncio.get_running_loop().time() + self._stop_timeout
            await self._watcher.stop()
            await self._flush(_FLUSH_SHARE * self._stop_timeout)
            await self._free_leases(until=end)
        await self._link.close()

    async def _flush(self, seconds: float) -> None:
        await asyncio.gather(*(each.flush(seconds) for each in self._settlements.values()))

    async def _free_leases(self, *, until: float) -> None:
        """Another replica takes over at once; if this fails, when the leases end."""
        try:
            async with asyncio.timeout_at(until):
                for queue_name in {*self._queue_names, *self._claims}:
                    await leases.give_back(self._link, queue_name, f"{self.owner}:")
        except (BrokerUnavailable, BrokerRefused, TimeoutError) as error:
            _log.warning("leases_not_freed", error=str(error) or "the broker does not answer")

    @passing
    async def ping(self) -> None:
        try:
            async with asyncio.timeout(_PING_SECONDS):
                await self._link.client.execute("PING")
                await require_replicas(self._link.client, self._settings.confirm)
        except TimeoutError:
            raise BrokerUnavailable(f"Redis gave no answer for {_PING_SECONDS:g} s") from None

    @passing
    async def claim(self, queue_name: str, limit: int, *, suspects: bool) -> Sequence[Delivery]:
        return await self._claims_of(queue_name).claim(
            limit, highest="+inf", suspects=int(suspects)
        )

    @passing
    async def claim_expired(self, queue_name: str, limit: int) -> Sequence[Delivery]:
        await parking.recall_expired(self._link, queue_name, limit)
        return await self._claims_of(queue_name).claim(limit, highest="now", suspects=limit)

    def _claims_of(self, queue_name: str) -> QueueClaims:
        if queue_name not in self._claims:
            self._claims[queue_name] = QueueClaims(self._link, queue_name, self._claim_bytes)
        return self._claims[queue_name]

    async def settle(self, delivery: Delivery, outcome: Outcome) -> Settlement:
        queue_name = delivery.queue_name
        if queue_name not in self._settlements:
            self._settlements[queue_name] = QueueSettlements(self._link, queue_name)
        return await self._settlements[queue_name].settle(delivery, outcome)

    @passing
    async def extend(self, deliveries: Sequence[Delivery]) -> Collection[str]:
        return await leases.extend(self._link, deliveries)

    @passing
    async def reclaim(self, queue_name: str) -> int:
        count = await reclaiming.reclaim(self._link, queue_name)
        await stranded.bring_in(self._link, queue_name)
        return count

    @passing
    async def reclaim_from(self, queue_name: str, owner: str) -> int:
        return await reclaiming.reclaim_from(self._link, queue_name, owner)

    @passing
    async def promote_retries(self) -> float | None:
        return await self._retries.promote()

    @passing
    async def trim_dead_letters(self, limit: int) -> int:
        name = self._settings.dead_letter_queue_name
        return int(await TRIM.run(self._link.client, [name], [limit]))

    @passing
    async def lots(self, queue_name: str) -> Sequence[str]:
        return await parking.lots(self._link, queue_name)

    @passing
    async def recall(self, queue_name: str, lot: str, limit: int) -> int:
        return await parking.recall(self._link, queue_name, lot, limit)

    @passing
    async def next_expiry(self, queue_name: str) -> float | None:
        await self._claims_of(queue_name).look_after()
        keys = (queue_name, queue_keys(queue_name).lots)
        asked_at = self._clock.monotonic()
        told, lowest, _ = await FIRST.run(self._link.client, keys, (0,))
        self._link.hear_time(float(told), asked_at)
        return float(lowest) if lowest else None

    async def wait_for_work(self, queue_name: str, timeout: float) -> bool:
        return await self._watcher.wait(queue_name, timeout)

    @passing
    async def cancelled(self, deliveries: Sequence[Delivery]) -> Collection[str]:
        asked = [delivery for delivery in deliveries if delivery.request_token]
        found = await self._values([cancel_key(delivery.request_id) for delivery in asked])
        return {
            delivery.token
            for delivery, value in zip(asked, found, strict=True)
            if value == delivery.request_token.encode()
        }

    @passing
    async def stored_payload(self, delivery: Delivery) -> bytes | None:
        if not delivery.payload_ref:
            return None
        (payload,) = await self._values([delivery.payload_ref])
        return payload

    async def _values(self, keys: Sequence[str]) -> list[bytes | None]:
        """The strings under keys, None for other types; on a cluster each key has its slot."""
        at_once = 1 if self._link.client.clustered else _KEYS_AT_ONCE
        chunks = (keys[start : start + at_once] for start in range(0, len(keys), at_once))
        answers = await self._link.client.pipeline([("MGET", *chunk) for chunk in chunks])
        return [value for answer in answers for value in answer]

    @passing
    async def backlog(self, queue_name: str, bounds_ms: Sequence[int]) -> Backlog:
        now = self._clock.now()
        bounds = [repr(now + bound / 1000) for bound in bounds_ms]
        answers = await self._link.ask(queue_name, self._questions(queue_name, now))
        leased, retries_due, buried, astray, (told, lowest, first) = answers
        self._stranded[queue_name] = astray
        waiting, *within = await COUNT.run(self._link.client, [queue_name], bounds)
        parked, *parked_within = await parking.count(self._link, queue_name, bounds)
        sums = (sum(pair) for pair in zip(within, parked_within, strict=True))
        return Backlog(
            waiting=waiting,
            parked=parked,
            leased=leased,
            retries_due=retries_due,
            dead_letters=buried + sum(self._stranded.values()),
            oldest_deadline=float(lowest) if lowest else None,
            oldest_age=age(first, float(told)),
            deadlines=(*sums, waiting + parked),
        )

    def _questions(self, queue_name: str, now: float) -> list[Command]:
        return [
            ("HLEN", queue_keys(queue_name).claims),
            ("ZCOUNT", self._settings.retry_queue_name, "-inf", repr(now)),
            ("LLEN", self._settings.dead_letter_queue_name),
            ("LLEN", queue_keys(queue_name).stranded),
            FIRST.command((queue_name, queue_keys(queue_name).lots), (MOST_BYTES,)),
        ]
