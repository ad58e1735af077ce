"""How many replicas there are, and which of them this one is: what a gate that all replicas share
(`shared: true`) is divided by.

What holds while every replica can read the roll:

* The portions of all replicas add up to the whole exactly, for their ranks differ; a replica that
  is alone has everything.
* Whoever joins takes nothing until the others have had the time to notice it and to take less:
  for JOIN_SECONDS. So it does when it finds itself alone, for the roll may have been lost, and the
  others may not have entered again. Whoever comes back to a roll on which others have been known
  for so long joins too, for they may have taken its part.
* When the roll is lost, whole or in part (Redis away for about a lease, or emptied), whoever comes
  back keeps the part that it had, takes less at once where it must, and takes more only when it has
  been on the roll for JOIN_SECONDS without a break: by then the others are back.
* What runs never exceeds a limit that all replicas divide (as long as nobody lowers the limit):
  each keeps to the least of its portions, and takes a larger one only when all others have said
  that what they run is within theirs, of the same roster. Until then a replica that joins has
  nothing; so it waits for calls that began before it came.
* Whoever cannot read the roll keeps the portion that it had last, and never takes a larger one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from async_processor.admission.portion import NOTHING, WHOLE, Least, Portion, least
from async_processor.clock import Clock
from async_processor.errors import BrokerRefused, BrokerUnavailable
from async_processor.listeners import Leave, Listeners, all_of, nobody_tells
from async_processor.redis_io.roll import Seen
from async_processor.telemetry.logs import get_logger

RENEW_SECONDS: Final = 2.0
"""Between two looks at the roll."""

RETRY_SECONDS: Final = 0.5
"""Between two looks at a roll that cannot be read: all are back soon after it is."""

JOIN_SECONDS: Final = 1.5 * RENEW_SECONDS
"""After this the others have noticed whoever joined, and are on a roll that was lost."""

LEAVE_SECONDS: Final = 1.0
"""At most this long a replica that stops tries to say so."""

_log = get_logger(__name__)


class Roll(Protocol):
    """Where the replicas that live are written down, each until its lease ends."""

    async def renew(self, kept: str) -> Seen:
        """Stay on the roll, and say to which roster all that runs here keeps; empty: to none.

        Raises BrokerUnavailable or BrokerRefused.
        """
        ...

    async def leave(self) -> None:
        """Be on the roll no more. Raises as `renew`."""
        ...


Fits = Callable[[Portion], bool]


class Census(Protocol):
    """What this replica may take of what all of them share."""

    def portion(self) -> Portion: ...

    def subscribe(self, changed: Callable[[], None]) -> Leave:
        """Call `changed` whenever the portion has changed."""
        ...

    def in_flight(self) -> Least:
        """What this replica may run of a limit that all of them divide."""
        ...

    def divide(self, changed: Callable[[], None], fits: Fits) -> Leave:
        """Like `subscribe`, for a limit on what runs; `fits` tells whether that is in a portion."""
        ...


class Alone:
    """The census of one replica, or of gates that replicas do not share."""

    def portion(self) -> Portion:
        return WHOLE

    def subscribe(self, changed: Callable[[], None]) -> Leave:  # noqa: ARG002
        """Nothing ever changes."""
        return nobody_tells

    def in_flight(self) -> Least:
        return least(WHOLE)

    def divide(self, changed: Callable[[], None], fits: Fits) -> Leave:  # noqa: ARG002
        """Nothing ever changes."""
        return nobody_tells


ALONE: Final = Alone()


class RollCensus:
    """Keeps this replica on a roll as long as `run` runs and a gate wants it.

    Until `run` has begun this process is no replica (it only looks at gates), and sees the whole.
    Only `run` writes what the others see of it.
    """

    def __init__(self, roll: Roll, clock: Clock) -> None:
        self._roll = roll
        self._clock = clock
        self._wanted = asyncio.Event()
        self._portion = WHOLE
        self._in_flight = least(WHOLE)
        self._listed = NOTHING
        """The portion by the roster that was last seen."""
        self._roster = ""
        self._limits = dict[object, Fits]()
        self._unread = ""
        self._changed = Listeners[[]]()

    @property
    def wanted(self) -> bool:
        """Whether a gate goes by the roll, or has."""
        return self._wanted.is_set()

    def portion(self) -> Portion:
        return self._portion

    def subscribe(self, changed: Callable[[], None]) -> Leave:
        """From now on the roll is needed."""
        self._wanted.set()
        return self._changed.add(changed)

    def in_flight(self) -> Least:
        return self._in_flight

    def divide(self, changed: Callable[[], None], fits: Fits) -> Leave:
        key = object()
        self._limits[key] = fits

        def forget() -> None:
            self._limits.pop(key, None)

        return all_of([self.subscribe(changed), forget])

    async def run(self) -> None:
        """Run until cancelled; then the others hear at once that there is one less."""
        self._take(NOTHING, least(NOTHING))
        await self._wanted.wait()
        try:
            while True:
                said = self._kept()
                await self._renew(said)
                if self._kept() == said:
                    await self._clock.sleep(RETRY_SECONDS if self._unread else RENEW_SECONDS)
        finally:
            await self._leave()

    def _kept(self) -> str:
        """The roster that all that runs here keeps to; empty: what was seen last is too narrow."""
        return self._roster if self._fits(self._listed) else ""

    def _fits(self, portion: Portion) -> bool:
        return all(fits(portion) for fits in self._limits.values())

    async def _renew(self, kept: str) -> None:
        try:
            seen = await self._roll.renew(kept)
        except (BrokerUnavailable, BrokerRefused) as error:
            self._lost(str(error))
            return
        self._unread = ""
        self._roster = seen.roster
        self._listed = Portion(replicas=seen.replicas, rank=seen.rank)
        self._take(*self._parts(seen, self._listed))

    def _parts(self, seen: Seen, listed: Portion) -> tuple[Portion, Least]:
        """What this replica may take now of readings, and of what runs."""
        narrowed = self._in_flight.narrowed(listed)
        if seen.age >= JOIN_SECONDS:
            return listed, least(listed) if seen.agreed else narrowed
        if seen.oldest - seen.age >= JOIN_SECONDS:
            return NOTHING, least(NOTHING)
        return self._portion.narrowed(listed), narrowed

    def _lost(self, reason: str) -> None:
        if reason != self._unread:
            _log.warning("census_unreadable", reason=reason, replicas=self._portion.replicas)
        self._unread = reason

    def _take(self, portion: Portion, in_flight: Least) -> None:
        if self.wanted and portion != self._portion:
            _log.info("replicas", count=portion.replicas, rank=portion.rank)
        before = self._portion, self._in_flight
        self._portion, self._in_flight = portion, in_flight
        if before != (portion, in_flight):
            self._changed.tell()

    async def _leave(self) -> None:
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._roll.leave()
        except (BrokerUnavailable, BrokerRefused, TimeoutError) as error:
            # The others notice when this replica's lease ends.
            _log.warning("census_not_left", reason=str(error) or type(error).__name__)
