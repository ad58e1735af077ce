"""The gate over a quota (`redis-quota`).

Whom its quota does not cover is refused into a lot of its own tenant and called back when there is
room, so that no tenant stands in another's way; or, in classifying mode, only marked as overflow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from async_processor.admission.base import (
    OVERFLOW_LOT,
    Candidate,
    Classification,
    Continue,
    GateState,
    Reason,
    Refuse,
    Verdict,
)
from async_processor.admission.quota.book import Book, Full
from async_processor.admission.quota.tenants import Tenants
from async_processor.admission.quota.waiting import Waiting
from async_processor.admission.tickets import HOLDS_NOTHING
from async_processor.clock import Clock
from async_processor.errors import BrokerUnavailable
from async_processor.lifecycle import Watch
from async_processor.listeners import Leave, Listeners, Subscriptions
from async_processor.wire.tenants import canonical

ALLOW: Final = "allow"
REFUSE: Final = "refuse"
"""What may become of a request without a tenant; any other word is the tenant it counts under."""

UNLIMITED: Final = 1_000_000
"""Room for a tenant that has no limit (any more)."""

SHOWN_TENANTS: Final = 3
"""How many names of tenants a reason tells."""

LOOK_SECONDS: Final = 0.05
"""Between two looks for tenants that may have room by now."""

OVERFLOW_LOOK: Final = 1.0
"""Seconds: overflow that waits for its turn here hears nothing of what other replicas free."""

_UNCOUNTED: Final = Continue(ticket=HOLDS_NOTHING)


class QuotaGate:
    """One queue's or pool's gate over a count that it may share with others.

    `name` tells the quota from others, in lots and for people.
    """

    def __init__(
        self,
        book: Book,
        tenants: Tenants,
        *,
        name: str,
        blocking: bool,
        missing: str,
        clock: Clock,
        watch: Watch,
    ) -> None:
        self._book = book
        self._tenants = tenants
        self._name = name
        self._blocking = blocking
        self._missing = missing
        self._clock = clock
        self._watch = watch
        self._lot = f"{'' if blocking else OVERFLOW_LOT}{name}"
        self._waiting = Waiting()
        self._wakes = Listeners[[]]()
        self._recalls = Listeners[[str]]()
        self._task: asyncio.Task[None] | None = None
        self._hears = Subscriptions(
            partial(book.subscribe, self._wakes.tell), partial(book.on_room, self._freed)
        )

    async def start(self) -> None:
        self._hears.join()
        await self._book.start()
        if self._task is None:
            self._task = self._watch.spawn(f"quota gate {self._name}", self._look_again())

    async def stop(self) -> None:
        self._hears.leave()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        await self._book.stop()

    def budget(self) -> float:
        return 1.0 if self._book.available or not self._blocking else 0.0

    def permits(self, workers: int) -> int:
        return workers if self.budget() else 0

    async def admit(self, candidate: Candidate) -> Verdict:
        tenant = self._tenants.of(candidate.envelope.request)
        if not tenant:
            if self._missing == ALLOW:
                return _UNCOUNTED
            if self._missing == REFUSE:
                return self._nobody()
            tenant = canonical(self._missing)
        limit = self._tenants.limit(tenant)
        if limit is None:
            return self._unlimited(tenant)
        return await self._ask(tenant, limit, candidate)

    async def _ask(self, tenant: str, limit: int, candidate: Candidate) -> Verdict:
        if not self._book.available:
            return self._unreadable(tenant)
        try:
            taken = await self._book.take(tenant, limit, candidate.envelope)
        except BrokerUnavailable:
            return self._unreadable(tenant)
        if isinstance(taken, Full):
            self._full(tenant, taken)
            return self._over(tenant, limit)
        return Continue(
            ticket=taken, classification=Classification.RESERVED, lot=self._overflow_lot(tenant)
        )

    def _over(self, tenant: str, limit: int) -> Verdict:
        if not self._blocking:
            return self._overflow(tenant)
        message = f"{tenant} is over its quota of {limit}"
        return Refuse(reason=Reason.QUOTA_EXHAUSTED, message=message, lot=self._lot_of(tenant))

    def _overflow(self, tenant: str) -> Continue:
        return Continue(
            ticket=HOLDS_NOTHING,
            classification=Classification.OVERFLOW,
            lot=self._overflow_lot(tenant),
        )

    def _unlimited(self, tenant: str) -> Continue:
        """A quota that says nothing of a tenant covers nothing and limits nothing."""
        return _UNCOUNTED if self._blocking else self._overflow(tenant)

    def _unreadable(self, tenant: str) -> Verdict:
        """Never open: nothing passes, and what is only marked is marked as not covered."""
        if not self._blocking:
            return self._overflow(tenant)
        return Refuse(reason=Reason.ERROR, message=f"the quota cannot be read: {self._book.fault}")

    def _nobody(self) -> Refuse:
        message = f"the request has no metadata {self._tenants.attribute!r} to count it under"
        return Refuse(reason=Reason.QUOTA_EXHAUSTED, message=message, lot=f"{self._lot}:nobody")

    def subscribe(self, wake: Callable[[], None]) -> Leave:
        return self._wakes.add(wake)

    async def room(self, lot: str) -> int | None:
        if lot == f"{self._lot}:nobody":
            return 0 if self._missing == REFUSE else UNLIMITED
        tenant = lot.removeprefix(self._lot_of(""))
        if tenant == lot:
            return None
        limit = self._tenants.limit(tenant)
        if limit is None:
            return UNLIMITED
        try:
            room = await self._book.room(tenant, limit)
        except BrokerUnavailable:
            return 0
        if isinstance(room, Full):
            self._full(tenant, room)
            return 0
        return room

    def on_room(self, recall: Callable[[str], None]) -> Leave:
        return self._recalls.add(recall)

    def state(self) -> GateState:
        return GateState(
            type="redis-quota",
            budget=self.budget(),
            available=self._book.available,
            reason=self._reason(),
        )

    def _lot_of(self, tenant: str) -> str:
        return f"{self._lot}:of:{tenant}"

    def _overflow_lot(self, tenant: str) -> str:
        return "" if self._blocking else self._lot_of(tenant)

    def _full(self, tenant: str, full: Full) -> None:
        look_after = full.look_after if self._blocking else min(full.look_after, OVERFLOW_LOOK)
        self._waiting.full(tenant, self._clock.monotonic(), look_after)

    async def _look_again(self) -> None:
        """Tell of the tenants that may have room by now, unheard. Runs until cancelled."""
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            due = self._waiting.due(self._clock.monotonic())
            for tenant in due:
                self._tell(tenant)
            if due:
                self._wakes.tell()

    def _freed(self, tenant: str) -> None:
        self._tell(tenant)
        self._wakes.tell()

    def _tell(self, tenant: str) -> None:
        self._recalls.tell(self._lot_of(tenant))

    def _reason(self) -> str:
        if not self._book.available:
            return self._book.fault
        names = self._waiting.over_quota(self._clock.monotonic())
        if not names:
            return ""
        more = f" and {len(names) - SHOWN_TENANTS} more" if len(names) > SHOWN_TENANTS else ""
        return f"over their quotas: {', '.join(names[:SHOWN_TENANTS])}{more}"
