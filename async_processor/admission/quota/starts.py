"""Rate limits: each request is charged once, at its first start.

A charge is kept under a digest of the request, its id and token among the rest, until the request
is settled (its deadline at the latest, a day at most, and for the 100,000 requests of a tenant with
the latest deadlines), so that a retry, or a second try after a lost answer, costs no second token.
Whoever is refunded has not started: its charge goes as if it had never been. The same bytes are
another request, with a charge of its own, after the first is settled, and while it runs here.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from itertools import count
from typing import Final
from weakref import WeakValueDictionary

from async_processor.admission.base import Ticket
from async_processor.admission.quota.book import Full
from async_processor.admission.quota.ledger import Ledger, Question
from async_processor.clock import Clock
from async_processor.lifecycle import Watch
from async_processor.listeners import Leave, Listeners
from async_processor.redis_io.keys import QuotaKeys
from async_processor.redis_io.scripts import QUOTA_STARTS
from async_processor.redis_io.shared import SharedClient
from async_processor.wire.envelope import Envelope

REMEMBERED_SECONDS: Final = 24 * 3600.0
REMEMBERED_REQUESTS: Final = 100_000
WANTED_SECONDS: Final = 60.0

_CHARGED: Final = 1
_FLUSH_SECONDS: Final = 2.0


class Charge:
    """The ticket of a request that was charged: `paid` says whether for this attempt."""

    __slots__ = ("__weakref__", "_book", "envelope", "paid", "request", "start", "tenant")

    def __init__(
        self, book: Starts, tenant: str, envelope: Envelope, request: str, start: str
    ) -> None:
        self._book = book
        self.tenant = tenant
        self.envelope = envelope
        self.request = request
        """What the charge is remembered under."""
        self.start = start
        """What no other charge calls its start."""
        self.paid = False

    def release(self) -> None:
        self.paid = False

    def refund(self) -> None:
        if self.paid:
            self.paid = False
            self._book.refund(self)

    def settled(self) -> None:
        self._book.settle(self)

    def shed(self) -> None:
        """A full pool says nothing of a tenant's quota."""

    def on_loss(self, cut_off: Callable[[], None]) -> None:
        """A charge is never lost."""


class Starts:
    """The starts of this process under one quota; `window` is in seconds."""

    def __init__(
        self, client: SharedClient, keys: QuotaKeys, *, window: float, clock: Clock, watch: Watch
    ) -> None:
        self._keys = keys
        self._window = window
        self._clock = clock
        self._watch = watch
        self._owner = secrets.token_hex(8)
        self._numbers = count(1)
        self._charges = WeakValueDictionary[str, Charge]()
        """By request, for as long as its worker has the ticket."""
        self._freed = Listeners[[str]]()
        self._task: asyncio.Task[None] | None = None
        self._ledger = Ledger(
            client,
            QUOTA_STARTS,
            shared_key=keys.wanted,
            settings=(
                math.ceil(window * 1000),
                round(WANTED_SECONDS * 1000),
                REMEMBERED_REQUESTS,
            ),
            clock=clock,
        )

    @property
    def available(self) -> bool:
        return self._ledger.available

    @property
    def fault(self) -> str:
        return self._ledger.fault

    def subscribe(self, wake: Callable[[], None]) -> Leave:
        return self._ledger.subscribe(wake)

    def on_room(self, freed: Callable[[str], None]) -> Leave:
        return self._freed.add(freed)

    async def start(self) -> None:
        if self._task is None:
            self._task = self._watch.spawn(f"quota {self._keys.group} look", self._ledger.run())

    async def stop(self) -> None:
        if len(self._freed):
            return
        task, self._task = self._task, None  # another gate may start it again meanwhile
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._ledger.flush(_FLUSH_SECONDS)

    async def take(self, tenant: str, limit: int, envelope: Envelope) -> Ticket | Full:
        charge = self._charge(tenant, envelope)
        question = self._question("charge", charge, limit, self._remember_ms(charge))
        try:
            answer = await self._ledger.ask(question)
        except BaseException:
            del charge  # the error keeps this frame, and a charge that is kept is one that runs
            raise
        if answer < 0:
            return Full(look_after=-answer / 1000)
        charge.paid = answer == _CHARGED
        return charge

    def _charge(self, tenant: str, envelope: Envelope) -> Charge:
        start, request = f"{self._owner}:{next(self._numbers)}", identity(envelope)
        charge = Charge(self, tenant, envelope, request, start)
        first = self._charges.setdefault(request, charge)
        if first.envelope is not envelope:
            charge.request = start  # the same bytes as what runs here, and another request
        return charge

    async def room(self, tenant: str, limit: int) -> int | Full:
        question = Question(what="room", keys=self._keys_of(tenant), tenant=tenant, limit=limit)
        answer = await self._ledger.ask(question)
        return answer if answer > 0 else Full(look_after=-answer / 1000)

    async def used(self, tenants: Sequence[str]) -> Sequence[int]:
        return await self._ledger.read(
            [Question(what="used", keys=self._keys_of(tenant), tenant=tenant) for tenant in tenants]
        )

    def refund(self, charge: Charge) -> None:
        """As soon as Redis can be told."""
        answer = self._ledger.ask(self._question("refund", charge))
        answer.add_done_callback(partial(self._refunded, charge.tenant))

    def settle(self, charge: Charge) -> None:
        """Likewise; what is lost on the way is forgotten at the request's deadline."""
        self._ledger.ask(self._question("settle", charge))

    def _refunded(self, tenant: str, answer: asyncio.Future[int]) -> None:
        if not answer.cancelled() and answer.exception() is None and answer.result():
            self._freed.tell(tenant)

    def _question(
        self, what: str, charge: Charge, limit: int = 0, remember_ms: int = 0
    ) -> Question:
        return Question(
            what=what,
            keys=self._keys_of(charge.tenant),
            tenant=charge.tenant,
            name=charge.request,
            start=charge.start,
            limit=limit,
            remember_ms=remember_ms,
        )

    def _keys_of(self, tenant: str) -> tuple[str, str]:
        return self._keys.starts(tenant), self._keys.charged(tenant)

    def _remember_ms(self, charge: Charge) -> int:
        """As long as the request may live, and never less than its start counts; of one that is not
        known by its bytes the next attempt would not be found again."""
        if charge.request == charge.start:
            return 0
        left = charge.envelope.request.deadline - self._clock.now()
        shortest = 2 * self._window
        return round(1000 * max(shortest, min(left, REMEMBERED_SECONDS)))


def identity(envelope: Envelope) -> str:
    """The same for every attempt at a request, and another for every other request.

    A request without a token is told from others by what it asks for.
    """
    request = envelope.request
    parts = (
        request.id, envelope.request_token, repr(request.deadline), str(envelope.enqueue_seq),
        request.endpoint, envelope.payload_ref,
    )  # fmt: skip
    digest = blake2b("\0".join(parts).encode(errors="surrogatepass"), digest_size=16)
    digest.update(request.payload or b"")
    return digest.hexdigest()
