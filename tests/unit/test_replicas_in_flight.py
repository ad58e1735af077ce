"""Whatever order replicas join, look, work, stop and fall silent in, and however often the roll is
lost: what they run together never exceeds the limit that they divide."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Coroutine, Sequence
from typing import TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from async_processor.admission.base import Continue, Ticket
from async_processor.admission.census import JOIN_SECONDS, RENEW_SECONDS, RollCensus
from async_processor.admission.concurrency import ConcurrencyGate
from async_processor.admission.live_number import LiveNumber
from async_processor.errors import BrokerUnavailable
from async_processor.redis_io.roll import LEASE_SECONDS, Seen
from async_processor.testing.candidates import candidate
from async_processor.testing.clock import ManualClock

T = TypeVar("T")


class Sheet:
    """The roll, as the script in Redis keeps it."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self.now = 0.0
        self.away = False
        self._came: dict[str, float] = {}
        self._renewed: dict[str, float] = {}

    def drop(self, name: str) -> None:
        self.kept.pop(name, None)
        self._came.pop(name, None)

    def renew(self, own: str, kept: str) -> Seen:
        if self.away:
            raise BrokerUnavailable("gone")
        self.kept[own] = kept
        if self._is_broken(own):
            self._came[own] = self.now
        self._renewed[own] = self.now
        ages = {
            name: 0.0 if self._is_broken(name) else self.now - self._came[name]
            for name in self.kept
        }
        names = sorted(self.kept)
        roster = hashlib.sha256(" ".join(names).encode()).hexdigest()
        agreed = all(self.kept[name] == roster for name in names if name != own)
        return Seen(
            replicas=len(names),
            rank=names.index(own),
            roster=roster,
            agreed=agreed,
            age=ages.pop(own),
            oldest=max(ages.values(), default=0.0),
        )

    def _is_broken(self, name: str) -> bool:
        """Whether it is not on the roll, or has not renewed for half a lease."""
        return name not in self._came or self.now - self._renewed[name] > LEASE_SECONDS / 2


class Entry:
    """One replica's line on the sheet."""

    def __init__(self, sheet: Sheet, own: str) -> None:
        self.own = own
        self._sheet = sheet

    async def renew(self, kept: str) -> Seen:
        return self._sheet.renew(self.own, kept)

    async def leave(self) -> None:
        self._sheet.drop(self.own)


class Replica:
    """A census, its gate, and what runs; a test says when it looks."""

    def __init__(self, sheet: Sheet, own: str, limit: int) -> None:
        self.entry = Entry(sheet, own)
        self.census = RollCensus(self.entry, ManualClock())
        self.gate = ConcurrencyGate(LiveNumber(limit), blocking=False, census=self.census)
        self.running: list[Ticket] = []
        self.looked = sheet.now
        self._sheet = sheet
        self._begun: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Look for the first time; its next looks would be timed, and are asked for instead."""
        await self.gate.start()
        self._begun = asyncio.create_task(self.census.run())
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def look(self) -> None:
        self.looked = self._sheet.now
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

    @rule(order=st.permutations("abcd"), seconds=st.integers(1, 5))
    def time_goes_on(self, order: Sequence[str], seconds: int) -> None:
        """Nobody who can read the roll leaves it unread for longer than RENEW_SECONDS."""
        for _ in range(seconds):
            self.sheet.now += 1.0
            for name in order:
                replica = self.replicas.get(name)
                if replica and self.sheet.now - replica.looked >= RENEW_SECONDS:
                    self.wait(replica.look())

    @rule()
    def lose_the_roll(self) -> None:
        for name in [*self.sheet.kept]:
            self.sheet.drop(name)

    @rule(seconds=st.integers(8, 15), ended=st.sets(REPLICAS))
    def outage(self, seconds: int, ended: set[str]) -> None:
        """Nobody can read the roll, and some leases end meanwhile."""
        self.sheet.now += float(seconds)
        for name in ended:
            self.sheet.drop(name)
        for replica in self.replicas.values():
            replica.looked = self.sheet.now

    @rule(name=REPLICAS)
    def lapse(self, name: str) -> None:
        """One that runs nothing is suspended for so long that its lease ends, then works on."""
        if name in self.replicas and not self.replicas[name].running:
            self.sheet.drop(name)
            others = [other for other in self.replicas if other != name]
            for _ in range(4):
                self.sheet.now += JOIN_SECONDS
                for other in others:
                    self.wait(self.replicas[other].look())
            self.wait(self.replicas[name].look())

    @rule(name=REPLICAS)
    def look_in_vain(self, name: str) -> None:
        if name in self.replicas:
            replica, self.sheet.away = self.replicas[name], True
            looked = replica.looked
            self.wait(replica.look())
            replica.looked, self.sheet.away = looked, False

    @rule(name=REPLICAS, times=st.integers(1, 7))
    def work(self, name: str, times: int) -> None:
        for _ in range(times if name in self.replicas else 0):
            self.wait(self.replicas[name].work())

    @rule(name=REPLICAS, times=st.integers(1, 7))
    def end(self, name: str, times: int) -> None:
        if name in self.replicas:
            for ticket in self.replicas[name].take(times):
                ticket.release()

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
        self.time_goes_on("abcd", 10)
        for name in self.replicas:
            self.work(name, self.limit)
        assert self.running == (self.limit if self.replicas else 0)
        for replica in self.replicas.values():
            self.wait(replica.stop())
        self.loop.close()


TestFleet = Fleet.TestCase
TestFleet.settings = settings(max_examples=60, stateful_step_count=30)
