"""Concurrency quotas: slots that end by themselves, and are kept while their requests run.

A slot's life is counted twice. Redis counts it from when it executed the last taking or keeping;
this process from before it asked for that, so it is never behind. It renews its slots every third
of a life; when four fifths have passed without an answer it cuts the work off, while the slot still
stands. Whatever is lost on the way (an answer, this process) costs a slot no longer than its life.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Final

from async_processor.admission.base import Ticket
from async_processor.admission.quota.book import Full
from async_processor.admission.quota.ledger import Ledger, Question
from async_processor.clock import Clock
from async_processor.errors import BrokerUnavailable
from async_processor.lifecycle import Watch
from async_processor.listeners import Leave, Listeners
from async_processor.redis_io.keys import QuotaKeys
from async_processor.redis_io.scripts import QUOTA_SLOTS
from async_processor.redis_io.shared import SharedClient
from async_processor.telemetry.logs import get_logger
from async_processor.wire.envelope import Envelope

RENEWALS: Final = 3
"""A slot is renewed that often in its life."""

SAFE_SHARE: Final = 0.8
"""Of a slot's life, after which the work is cut off; the rest is for the cutting."""

LOOKS: Final = 40
"""How often in a life it is looked whether a slot is still safe."""

WANTED_SECONDS: Final = 60.0
"""How long a tenant counts as waited for after somebody has asked for room in vain."""

_FLUSH_SECONDS: Final = 2.0

_log = get_logger(__name__)


class Slot:
    """The ticket of a request that has a slot. Times are monotonic seconds.

    What this process asks of the quota after its end comes after it there, too.
    """

    __slots__ = ("_book", "_cut_offs", "ended", "lost", "name", "safe_until", "tenant")

    def __init__(self, book: Slots, tenant: str, name: str, safe_until: float) -> None:
        self.tenant = tenant
        self.name = name
        self.safe_until = safe_until
        self.lost = False
        self.ended = False
        self._book = book
        self._cut_offs: list[Callable[[], None]] = []

    def release(self) -> None:
        self._book.give_back(self, "free")

    def refund(self) -> None:
        self._book.give_back(self, "refund")

    def shed(self) -> None:
        """A full pool says nothing of a tenant's quota."""

    def settled(self) -> None:
        """Nothing is remembered of a slot."""

    def on_loss(self, cut_off: Callable[[], None]) -> None:
        if self.lost:
            cut_off()
        else:
            self._cut_offs.append(cut_off)

    def end(self) -> None:
        """Nobody works under it any more: it keeps whom it would have cut off no longer, else each
        request would be left to the garbage collector."""
        self.ended = True
        self._cut_offs.clear()

    def lose(self) -> None:
        """The slot cannot be kept: whoever works under it must stop now."""
        self.lost = True
        for cut_off in self._cut_offs:
            cut_off()


class Slots:
    """The slots of this process under one quota; `life` is in seconds."""

    def __init__(
        self, client: SharedClient, keys: QuotaKeys, *, life: float, clock: Clock, watch: Watch
    ) -> None:
        self._keys = keys
        self._life = life
        self._clock = clock
        self._watch = watch
        self._owner = secrets.token_hex(8)
        self._numbers = count(1)
        self._held: dict[str, Slot] = {}
        self._unfreed: dict[str, Slot] = {}
        """Given back, and Redis has not confirmed it."""
        self._freed = Listeners[[str]]()
        self._tasks: list[asyncio.Task[None]] = []
        self._ledger = Ledger(
            client,
            QUOTA_SLOTS,
            shared_key=keys.wanted,
            settings=(math.ceil(life * 1000), round(WANTED_SECONDS * 1000)),
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
        if not self._tasks:
            work = {"look": self._ledger.run, "keep": self._keep, "guard": self._guard}
            self._tasks = [
                self._watch.spawn(f"quota {self._keys.group} {name}", each())
                for name, each in work.items()
            ]

    async def stop(self) -> None:
        if len(self._freed):
            return
        tasks, self._tasks = self._tasks, []  # another gate may start it again meanwhile
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._ledger.flush(_FLUSH_SECONDS)

    async def take(self, tenant: str, limit: int, envelope: Envelope) -> Ticket | Full:  # noqa: ARG002
        slot = Slot(self, tenant, f"{self._owner}:{next(self._numbers)}", self._safe_until())
        try:
            taken = await self._ledger.ask(self._question("take", slot, limit))
        except (BrokerUnavailable, asyncio.CancelledError):
            self.give_back(slot, "refund")  # Redis may have given it
            raise
        if taken < 0:
            return Full(look_after=-taken / 1000)
        if self._clock.monotonic() >= slot.safe_until:
            self.give_back(slot, "refund")
            raise BrokerUnavailable("the slot came too late to be kept")
        self._held[slot.name] = slot
        return slot

    async def room(self, tenant: str, limit: int) -> int | Full:
        question = Question(
            what="room", keys=(self._keys.slots(tenant),), tenant=tenant, limit=limit
        )
        answer = await self._ledger.ask(question)
        return answer if answer > 0 else Full(look_after=-answer / 1000)

    async def used(self, tenants: Sequence[str]) -> Sequence[int]:
        return await self._ledger.read(
            [
                Question(what="used", keys=(self._keys.slots(tenant),), tenant=tenant)
                for tenant in tenants
            ]
        )

    def give_back(self, slot: Slot, how: str) -> None:
        """As soon as Redis can be told: `how` is "free" or "refund". Once; then it does nothing."""
        if not slot.ended:
            slot.end()
            self._held.pop(slot.name, None)
            self._give_back(slot, how)

    def _give_back(self, slot: Slot, how: str) -> None:
        self._unfreed[slot.name] = slot
        answer = self._ledger.ask(self._question(how, slot))
        answer.add_done_callback(partial(self._answered, slot))

    def _answered(self, slot: Slot, answer: asyncio.Future[int]) -> None:
        if answer.cancelled() or answer.exception() is not None:
            return
        self._unfreed.pop(slot.name, None)
        if answer.result():
            self._freed.tell(slot.tenant)

    def _question(self, what: str, slot: Slot, limit: int = 0) -> Question:
        return Question(
            what=what,
            keys=(self._keys.slots(slot.tenant),),
            tenant=slot.tenant,
            name=slot.name,
            limit=limit,
        )

    def _safe_until(self) -> float:
        """For a slot that is asked for now."""
        return self._clock.monotonic() + SAFE_SHARE * self._life

    async def _keep(self) -> None:
        """Renew all slots together, a third of a life apart. Runs until cancelled."""
        while True:
            await self._clock.sleep(self._life / RENEWALS)
            self._free_again()
            self._renew()

    def _renew(self) -> None:
        """Ask only: answers are taken as they come, and `_guard` waits for none."""
        safe_until = self._safe_until()
        for slot in self._held.values():
            answer = self._ledger.ask(self._question("keep", slot))
            answer.add_done_callback(partial(self._renewed, slot, safe_until))

    def _renewed(self, slot: Slot, safe_until: float, answer: asyncio.Future[int]) -> None:
        if answer.cancelled() or answer.exception() is not None or slot.name not in self._held:
            return
        if answer.result():
            slot.safe_until = safe_until
        else:
            self._lose(slot, "it is gone from Redis")

    def _free_again(self) -> None:
        """What could not be freed, as long as it may still stand."""
        now = self._clock.monotonic()
        unfreed, self._unfreed = self._unfreed, {}
        for slot in unfreed.values():
            if now < slot.safe_until + self._life:
                self._give_back(slot, "free")

    async def _guard(self) -> None:
        """Cut off in time what could not be renewed. Runs until cancelled."""
        while True:
            await self._clock.sleep(self._life / LOOKS)
            now = self._clock.monotonic()
            for slot in [slot for slot in self._held.values() if slot.safe_until <= now]:
                self._lose(slot, "it could not be renewed")

    def _lose(self, slot: Slot, reason: str) -> None:
        del self._held[slot.name]
        _log.warning("quota_slot_lost", quota=self._keys.group, reason=reason)
        slot.lose()
