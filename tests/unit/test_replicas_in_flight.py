"""Whatever order replicas join, look, work, stop and fall silent in: what they run together never
exceeds the limit that they divide."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Coroutine, Sequence
from typing import TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from async_processor.admission.base import Continue, Ticket
from async_processor.admission.census import RollCensus
from async_processor.admission.concurrency import ConcurrencyGate
from async_processor.admission.live_number import LiveNumber
from async_processor.errors import BrokerUnavailable
from async_processor.redis_io.roll import Seen
from async_processor.testing.candidates import candidate
from async_processor.testing.clock import ManualClock

T = TypeVar("T")


class Sheet:
    """The roll, as the script in Redis keeps it."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self.away = False

    def renew(self, own: str, kept: str) -> Seen:
        if self.away:
            raise BrokerUnavailable("gone")
        new = own not in self.kept
        self.kept[own] = kept
        names = sorted(self.kept)
        roster = hashlib.sha256(" ".join(names).encode()).hexdigest()
        agreed = all(self.kept[name] == roster for name in names if name != own)
        return Seen(
            replicas=len(names), rank=names.index(own), roster=roster, agreed=agreed, new=new
        )


class Entry:
    """One replica's line on the sheet."""

    def __init__(self, sheet: Sheet, own: str) -> None:
        self.own = own
        self._sheet = sheet

    async def renew(self, kept: str) -> Seen:
        return self._sheet.renew(self.own, kept)

    async def leave(self) -> None:
        self._sheet.kept.pop(self.own, None)


class Replica:
    """A census, its gate, and what runs; a test says when it looks."""

    def __init__(self, sheet: Sheet, own: str, limit: int) -> None:
        self.entry = Entry(sheet, own)
        self.census = RollCensus(self.entry, ManualClock())
        self.gate = ConcurrencyGate(LiveNumber(limit), blocking=False, census=self.census)
        self.running: list[Ticket] = []
        self._begun: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Look for the first time; its next looks would be timed, and are asked for instead."""
        await self.gate.start()
        self._begun = asyncio.create_task(self.census.run())
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def look(self) -> None:
        await self.census._renew(self.census._kept())

    async def work(self) -> None:
        verdict = await self.gate.admit(candidate())
        if isinstance(verdict, Continue):
            self.running.append(verdict.ticket)

    def take(self, count: int) -> Sequence[Ticket]:
        """Up to so many of what runs, to be ended."""
        taken, self.running = self.running[:count], self.running[count:]
        return taken

    async def stop(self) -> None:
        assert self._begun is not None
        self._begun.cancel()
        await asyncio.gather(self._begun, return_exceptions=True)


REPLICAS = st.sampled_from("abcd")


class Fleet(RuleBasedStateMachine):
    """Four replicas that come and go, in any order of their names."""

    @initialize(limit=st.integers(1, 7), first=REPLICAS, second=REPLICAS)
    def begin(self, limit: int, first: str, second: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.sheet = Sheet()
        self.limit = limit
        self.replicas: dict[str, Replica] = {}
        for name in {first, second}:
            self.join_or_look(name)

    def wait(self, work: Coroutine[object, object, T]) -> T:
        return self.loop.run_until_complete(work)

    @rule(name=REPLICAS)
    def join_or_look(self, name: str) -> None:
        if name in self.replicas:
            self.wait(self.replicas[name].look())
        else:
            self.replicas[name] = Replica(self.sheet, name, self.limit)
            self.wait(self.replicas[name].begin())

    @rule(times=st.integers(1, 3))
    def all_look(self, times: int) -> None:
        for name in [*self.replicas] * times:
            self.join_or_look(name)

    @rule(name=REPLICAS)
    def look_in_vain(self, name: str) -> None:
        if name in self.replicas:
            self.sheet.away = True
            self.wait(self.replicas[name].look())
            self.sheet.away = False

    @rule(name=REPLICAS, times=st.integers(1, 7))
    def work(self, name: str, times: int) -> None:
        for _ in range(times if name in self.replicas else 0):
            self.wait(self.replicas[name].work())

    @rule(name=REPLICAS, times=st.integers(1, 7))
    def end(self, name: str, times: int) -> None:
        if name in self.replicas:
            for ticket in self.replicas[name].take(times):
                self.wait(ticket.release())

    @rule(name=REPLICAS)
    def stop(self, name: str) -> None:
        if name in self.replicas and not self.replicas[name].running:
            self.wait(self.replicas.pop(name).stop())

    @invariant()
    def never_more_than_the_limit(self) -> None:
        assert self.running <= self.limit

    @property
    def running(self) -> int:
        return sum(len(replica.running) for replica in self.replicas.values())

    def teardown(self) -> None:
        """Left in peace they use all of the limit again."""
        for name in self.replicas:
            self.end(name, self.limit)
        self.all_look(3)
        for name in self.replicas:
            self.work(name, self.limit)
        assert self.running == (self.limit if self.replicas else 0)
        for replica in self.replicas.values():
            self.wait(replica.stop())
        self.loop.close()


TestFleet = Fleet.TestCase
TestFleet.settings = settings(max_examples=60, stateful_step_count=30)
