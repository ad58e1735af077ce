"""Brings messages of one subscription in when somebody is free for them.

Pub/Sub cannot be looked into: to know whether a message waits, one has to lease it. So an idle
subscription is asked for one message; what comes wakes whoever waits, and from then on as much is
asked for as there are free slots. What nobody has taken after a second is given back, and nothing
is asked for until somebody is free again: a closed gate holds no messages.

A pull is never cut short: its answer, which may have leased messages already, would be lost. It
goes on in a task of its own while those who asked for it come and go.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from async_processor.transport.base import SUSPECT_AFTER
from async_processor.transport.google_pubsub.leases import Lease

HOLD: Final = 1.0
"""Seconds that a message waits here for a free slot."""

PATIENCE: Final = 0.05
"""Seconds that free slots wait for a pull: a round trip, for a queue that is not empty."""

SUSPECT_PAUSE: Final = 2.0
"""Seconds after which a suspect is delivered again that could not run because another one does."""

STOPPING: Final = 0.2
"""Seconds that a pull may go on when the process stops."""


class Hand:
    """The messages that were pulled and not claimed yet. Written by its own task and `take`.

    `pull` leases up to so many messages, `give_back` returns what nobody wants, to be delivered
    again after so many seconds.
    """

    def __init__(
        self,
        pull: Callable[[int], Awaitable[Sequence[Lease]]],
        give_back: Callable[[Sequence[Lease], float], None],
    ) -> None:
        self._pull = pull
        self._give_back = give_back
        self._leases: deque[Lease] = deque()
        self._pulling: asyncio.Task[None] | None = None
        self._fault: Exception | None = None
        self._promising = False
        """Messages probably wait: the last look found some."""
        self._holding: asyncio.TimerHandle | None = None

    async def wait(self, timeout: float) -> bool:
        """Whether there is probably work, after `timeout` seconds at most.

        Raises BrokerUnavailable.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while not self._hopeful:
                    await asyncio.wait({self._start(1)})
                    self._raise_fault()
                    if not self._hopeful:
                        await asyncio.sleep(PATIENCE)
        return self._hopeful

    @property
    def _hopeful(self) -> bool:
        return self._promising or bool(self._leases)

    async def take(self, limit: int, *, suspects: bool) -> list[Lease]:
        """Up to `limit` messages for as many free slots; raises BrokerUnavailable."""
        if not self._leases:
            await asyncio.wait({self._start(limit)}, timeout=PATIENCE)
            self._raise_fault()
        taken = self._choose(limit, suspects=suspects)
        self._promising = bool(taken)
        return taken

    def _choose(self, limit: int, *, suspects: bool) -> list[Lease]:
        """In their order, at most one suspect among them; the other suspects have to wait."""
        taken: list[Lease] = []
        unwanted: list[Lease] = []
        while self._leases and len(taken) < limit:
            lease = self._leases.popleft()
            if lease.deliveries < SUSPECT_AFTER:
                taken.append(lease)
            elif suspects:
                suspects = False
                taken.append(lease)
            else:
                unwanted.append(lease)
        if unwanted:
            self._give_back(unwanted, SUSPECT_PAUSE)
        return taken

    def _start(self, limit: int) -> asyncio.Task[None]:
        if self._pulling is None or self._pulling.done():
            self._pulling = asyncio.create_task(self._fill(limit), name="pull")
        return self._pulling

    async def _fill(self, limit: int) -> None:
        """Runs only while nothing is here, so that all that is here came at once."""
        try:
            pulled = await self._pull(limit)
        except Exception as error:  # noqa: BLE001 - it is theirs who wait
            self._fault = error
            return
        self._stop_holding()
        self._leases.extend(pulled)
        if self._leases:
            loop = asyncio.get_running_loop()
            self._holding = loop.call_later(HOLD, self._return_unclaimed)

    def _raise_fault(self) -> None:
        fault, self._fault = self._fault, None
        if fault is not None:
            raise fault

    def _return_unclaimed(self) -> None:
        unclaimed, self._leases = self._leases, deque()
        if unclaimed:
            self._promising = True
            self._give_back(tuple(unclaimed), 0)

    def _stop_holding(self) -> None:
        if self._holding is not None:
            self._holding.cancel()

    async def close(self) -> None:
        """Give back what is here, and what a pull under way brings soon."""
        if self._pulling is not None:
            await asyncio.wait({self._pulling}, timeout=STOPPING)
            self._pulling.cancel()
            await asyncio.gather(self._pulling, return_exceptions=True)
        self._stop_holding()
        self._return_unclaimed()
