"""How many replicas there are, and which of them this one is: what a gate that all replicas share
(`shared: true`) is divided by.

What holds while every replica can read the roll:

* The portions of all replicas add up to the whole exactly, for their ranks differ; a replica that
  is alone has everything.
* Whoever joins takes nothing until the others have had the time to notice it and to take less.
* Whoever cannot read the roll keeps the portion that it had last, and never takes a larger one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from async_processor.clock import Clock
from async_processor.errors import BrokerRefused, BrokerUnavailable
from async_processor.listeners import Leave, Listeners, nobody_tells
from async_processor.telemetry.logs import get_logger

RENEW_SECONDS: Final = 2.0
"""Between two looks at the roll."""

JOIN_SECONDS: Final = 1.5 * RENEW_SECONDS
"""After this the others have noticed whoever joined."""

LEAVE_SECONDS: Final = 1.0
"""At most this long a replica that stops tries to say so."""

_log = get_logger(__name__)


class Portion(msgspec.Struct, frozen=True, kw_only=True):
    """One replica's part of a whole; `rank` is in [0, replicas). With no replica it is nothing."""

    replicas: int
    rank: int

    @property
    def is_whole(self) -> bool:
        return self.replicas == 1

    def of(self, whole: int) -> int:
        """How many of `whole`; what cannot be divided goes to the first ranks."""
        if not self.replicas:
            return 0
        each, rest = divmod(whole, self.replicas)
        return each + (self.rank < rest)

    def of_budget(self, budget: float) -> float:
        """The share of a budget."""
        return budget / self.replicas if self.replicas else 0.0


WHOLE: Final = Portion(replicas=1, rank=0)
NOTHING: Final = Portion(replicas=0, rank=0)


class Roll(Protocol):
    """Where the replicas that live are written down, each until its lease ends."""

    async def renew(self) -> tuple[int, int]:
        """Stay on the roll; returns how many replicas there are, and this one's rank, from 0.

        Raises BrokerUnavailable or BrokerRefused.
        """
        ...

    async def leave(self) -> None:
        """Be on the roll no more. Raises as `renew`."""
        ...


class Census(Protocol):
    """What this replica may take of what all of them share."""

    def portion(self) -> Portion: ...

    def subscribe(self, changed: Callable[[], None]) -> Leave:
        """Call `changed` whenever the portion has changed."""
        ...


class Alone:
    """The census of one replica, or of gates that replicas do not share."""

    def portion(self) -> Portion:
        return WHOLE

    def subscribe(self, changed: Callable[[], None]) -> Leave:  # noqa: ARG002
        """Nothing ever changes."""
        return nobody_tells


ALONE: Final = Alone()


class RollCensus:
    """Keeps this replica on a roll as long as `run` runs and a gate wants it.

    Until `run` has begun this process is no replica (it only looks at gates), and sees the whole.
    Only `run` writes the portion.
    """

    def __init__(self, roll: Roll, clock: Clock) -> None:
        self._roll = roll
        self._clock = clock
        self._wanted = asyncio.Event()
        self._portion = WHOLE
        self._listed_since: float | None = None
        self._unread = ""
        self._changed = Listeners[[]]()

    def portion(self) -> Portion:
        return self._portion

    def subscribe(self, changed: Callable[[], None]) -> Leave:
        """From now on the roll is needed."""
        self._wanted.set()
        return self._changed.add(changed)

    async def run(self) -> None:
        """Run until cancelled; then the others hear at once that there is one less."""
        self._take(NOTHING)
        await self._wanted.wait()
        try:
            while True:
                await self._renew()
                await self._clock.sleep(RENEW_SECONDS)
        finally:
            await self._leave()

    async def _renew(self) -> None:
        try:
            replicas, rank = await self._roll.renew()
        except (BrokerUnavailable, BrokerRefused) as error:
            self._lost(str(error))
            return
        self._unread = ""
        if replicas == 1 or self._portion != NOTHING or self._is_known():
            self._take(Portion(replicas=replicas, rank=rank))

    def _is_known(self) -> bool:
        """Whether the others have had the time to notice that this replica has joined."""
        now = self._clock.monotonic()
        if self._listed_since is None:
            self._listed_since = now
        return now - self._listed_since >= JOIN_SECONDS

    def _lost(self, reason: str) -> None:
        if reason != self._unread:
            _log.warning("census_unreadable", reason=reason, replicas=self._portion.replicas)
        self._unread = reason

    def _take(self, portion: Portion) -> None:
        if portion == self._portion:
            return
        self._portion = portion
        _log.info("replicas", count=portion.replicas, rank=portion.rank)
        self._changed.tell()

    async def _leave(self) -> None:
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._roll.leave()
        except (BrokerUnavailable, BrokerRefused, TimeoutError) as error:
            # The others notice when this replica's lease ends.
            _log.warning("census_not_left", reason=str(error) or type(error).__name__)
