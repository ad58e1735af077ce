"""Quotas under any history: takings, renewals, lost answers, crashes, and a server's clock that
jumps. Compared with a model that knows no Redis, and with the plain words of the promise."""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import math
from collections.abc import Coroutine, Sequence
from functools import cache
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from async_processor.admission.base import Ticket
from async_processor.admission.quota import slots as slots_module
from async_processor.admission.quota import starts as starts_module
from async_processor.admission.quota.book import Full
from async_processor.admission.quota.slots import Slots
from async_processor.admission.quota.starts import Charge, Starts
from async_processor.errors import BrokerUnavailable
from async_processor.fields import TlsSettings
from async_processor.lifecycle import Watch
from async_processor.redis_io.connect import open_client
from async_processor.redis_io.keys import quota_keys
from async_processor.redis_io.scripts import QUOTA_SLOTS, QUOTA_STARTS, Script
from async_processor.redis_io.shared import SharedClient
from async_processor.testing.candidates import CANDIDATE, candidate
from async_processor.testing.clock import ManualClock
from async_processor.testing.proxy import BadNetwork
from async_processor.testing.servers import RedisServer

KEYS = quota_keys("quota:", "test")
START = 4_000_000_000_000
"""When the histories begin, Unix ms: so late that no key expires by the server's own clock."""
LIFE = 1000
PATIENCE = 60_000
LIMIT = 2
TENANTS = st.sampled_from(["a", "b"])
NAMES = st.integers(0, 4).map("n-{}".format)
STEPS = st.sampled_from([0, 1, 250, LIFE - 1, LIFE, LIFE + 1, 5 * LIFE])
FREQUENT = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


class TimedScript(Script):
    """A script that reads its time from a key, so that a test can be the server's clock."""

    def __init__(self, script: Script) -> None:
        read = b"(function() local t = redis.call('GET', '{test}:now') return "
        read += b"{math.floor(t / 1000), (t % 1000) * 1000} end)()"
        lifetime = b"redis.call('PEXPIRE', item.starts, window + 1)"
        self._text = script._text.replace(b"redis.call('TIME')", read).replace(lifetime, b"")
        self.digest = hashlib.sha1(self._text).hexdigest()


SLOTS, STARTS = TimedScript(QUOTA_SLOTS), TimedScript(QUOTA_STARTS)


async def ended(ticket: Ticket, *, refund: bool) -> None:
    """In the loop, where tickets end."""
    ticket.refund() if refund else ticket.release()


@cache
def _server() -> RedisServer:
    server = RedisServer()
    atexit.register(server.remove)
    server.start()
    return server


class OnRedis(RuleBasedStateMachine):
    """An empty Redis whose clock is `now`, Unix ms."""

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        _server().flush()
        self.client = open_client(_server().url)
        self.now = START
        self.run(self.set_time())
        self.prepare()

    def prepare(self) -> None:
        """What a history begins with."""

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    async def set_time(self) -> None:
        await self.client.execute("SET", "{test}:now", self.now)

    def pass_time(self, ms: int) -> None:
        self.now += ms
        self.run(self.set_time())

    def ask(self, script: Script, first: Sequence[Any], *items: tuple[Any, ...]) -> list[int]:
        keys = [KEYS.wanted]
        for tenant in ("a", "b"):
            keys += self.keys_of(tenant)
        width = len(self.keys_of("a"))
        words = [
            word
            for what, tenant, *rest in items
            for word in (what, 2 + width * "ab".index(tenant), tenant, *rest)
        ]
        answer: list[int] = self.run(script.run(self.client, keys, (*first, *words)))
        return answer

    def keys_of(self, tenant: str) -> Sequence[str]:
        raise NotImplementedError

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.run(self.client.close())
            self.loop.close()


class SlotHistory(OnRedis):
    """The model: each tenant's slots and when they end."""

    def keys_of(self, tenant: str) -> Sequence[str]:
        return (KEYS.slots(tenant),)

    def prepare(self) -> None:
        self.ends: dict[str, dict[str, int]] = {"a": {}, "b": {}}
        self.wanted: dict[str, int] = {}
        """Until when which tenant is waited for."""

    def want(self, tenant: str) -> None:
        self.wanted = {each: until for each, until in self.wanted.items() if until > self.now}
        self.wanted[tenant] = self.now + PATIENCE

    def alive(self, tenant: str) -> dict[str, int]:
        """Whoever looks takes out what has ended; it stays out when the clock is set back."""
        found = {name: end for name, end in self.ends[tenant].items() if end > self.now}
        self.ends[tenant] = found
        return dict(found)

    def ask_slots(self, *items: tuple[Any, ...]) -> list[int]:
        return self.ask(SLOTS, (LIFE, PATIENCE), *((*item[:3], "", item[3], 0) for item in items))

    def until_room(self, tenant: str, limit: int) -> int:
        """Minus the ms until fewer than the limit are alive."""
        ends = sorted(self.alive(tenant).values())
        return self.now - ends[len(ends) - limit]

    @rule(tenant=TENANTS, name=NAMES, limit=st.integers(1, 3))
    def take(self, tenant: str, name: str, limit: int) -> None:
        alive = self.alive(tenant)
        expected = name in alive or len(alive) < limit
        answer = 1 if expected else self.until_room(tenant, limit)
        assert self.ask_slots(("take", tenant, name, limit)) == [answer]
        self.ends[tenant] = alive | ({name: self.now + LIFE} if expected else {})
        if not expected:
            self.want(tenant)

    @rule(tenant=TENANTS, name=NAMES)
    def keep(self, tenant: str, name: str) -> None:
        expected = name in self.alive(tenant)
        assert self.ask_slots(("keep", tenant, name, 0)) == [int(expected)]
        if expected:
            self.ends[tenant][name] = self.now + LIFE

    @rule(tenant=TENANTS, name=NAMES)
    def free(self, tenant: str, name: str) -> None:
        waited_for = self.wanted.get(tenant, 0) > self.now
        assert self.ask_slots(("free", tenant, name, 0)) == [int(waited_for)]
        self.ends[tenant].pop(name, None)

    @rule(tenant=TENANTS, name=NAMES)
    def refund(self, tenant: str, name: str) -> None:
        """Nobody is told but who has begun to wait since the slot was taken."""
        waits_since = self.wanted.get(tenant, 0) - PATIENCE
        taken_at = self.ends[tenant].pop(name, math.inf) - LIFE
        assert self.ask_slots(("refund", tenant, name, 0)) == [int(waits_since >= taken_at)]

    @rule(names=st.lists(NAMES, min_size=1, max_size=4, unique=True))
    def take_together(self, names: list[str]) -> None:
        answers = self.ask_slots(*(("take", "a", name, LIMIT) for name in names))
        for name, answer in zip(names, answers, strict=True):
            alive = self.alive("a")
            taken = name in alive or len(alive) < LIMIT
            assert answer == (1 if taken else self.until_room("a", LIMIT))
            self.ends["a"] = alive | ({name: self.now + LIFE} if taken else {})
            if not taken:
                self.want("a")

    @rule(tenant=TENANTS, limit=st.integers(1, 3))
    def room(self, tenant: str, limit: int) -> None:
        left = limit - len(self.alive(tenant))
        answer = left if left > 0 else self.until_room(tenant, limit)
        assert self.ask_slots(("room", tenant, "", limit)) == [answer]
        self.want(tenant)

    @rule(tenant=TENANTS)
    def used(self, tenant: str) -> None:
        """Whoever only counts takes out nothing and waits for nothing."""
        alive = [end for end in self.ends[tenant].values() if end > self.now]
        assert self.ask_slots(("used", tenant, "", 0)) == [len(alive)]

    @rule(ms=STEPS)
    def wait(self, ms: int) -> None:
        self.pass_time(ms)

    @rule(ms=st.sampled_from([-10 * LIFE, -LIFE, -1, 3600_000]))
    def jump(self, ms: int) -> None:
        self.pass_time(ms)

    @rule()
    def empty_the_queue_of_freed(self) -> None:
        """Who is refused is waited for, and a freed slot tells so."""
        self.alive("a")
        self.ask_slots(("room", "a", "", 1))
        self.want("a")
        assert self.ask_slots(("free", "a", "nobody's", 0)) == [1]


class StartHistory(OnRedis):
    """The model: when which start was charged by a clock that never goes back, and the start of
    each request that is not settled."""

    def keys_of(self, tenant: str) -> Sequence[str]:
        return (KEYS.starts(tenant), KEYS.charged(tenant))

    def prepare(self) -> None:
        self.elapsed = 0
        self.charges: dict[str, dict[str, int]] = {"a": {}, "b": {}}
        self.open: dict[str, dict[str, str]] = {"a": {}, "b": {}}
        self.number = 0
        self.exact = True
        """The clock never jumped: then not only too many are refused, but none too many."""

    def ask_starts(self, *items: tuple[Any, ...]) -> list[int]:
        return self.ask(STARTS, (LIFE, PATIENCE, 1000), *items)

    def recent(self, tenant: str) -> list[int]:
        """Starts that count: an interval as long as the window includes both of its ends."""
        return [at for at in self.charges[tenant].values() if at >= self.elapsed - LIFE]

    @rule(tenant=TENANTS, number=st.integers(0, 30))
    def charge(self, tenant: str, number: int) -> None:
        name = f"r-{number}"
        self.number += 1
        start = f"s-{self.number}"
        (answer,) = self.ask_starts(("charge", tenant, name, start, LIMIT, 10**9))
        if name in self.open[tenant]:
            assert answer == 2
        elif answer == 1:
            assert len(self.recent(tenant)) < LIMIT
            self.charges[tenant][start] = self.elapsed
            self.open[tenant][name] = start
        else:
            assert answer < 0
            if self.exact:
                recent = sorted(self.recent(tenant))
                assert len(recent) == LIMIT
                assert -answer == recent[0] + LIFE + 1 - self.elapsed

    @rule(tenant=TENANTS, pick=st.integers(0, 30))
    def refund(self, tenant: str, pick: int) -> None:
        start = self.open[tenant].pop(f"r-{pick}", "none")
        self.ask_starts(("refund", tenant, f"r-{pick}", start, 0, 0))
        self.charges[tenant].pop(start, None)

    @rule(tenant=TENANTS, pick=st.integers(0, 30))
    def settle(self, tenant: str, pick: int) -> None:
        """Its start counts on, and it may come again."""
        assert self.ask_starts(("settle", tenant, f"r-{pick}", "", 0, 0)) == [0]
        self.open[tenant].pop(f"r-{pick}", None)

    @rule(tenant=TENANTS)
    def room(self, tenant: str) -> None:
        (answer,) = self.ask_starts(("room", tenant, "", "", LIMIT, 0))
        left = LIMIT - len(self.recent(tenant))
        assert max(0, answer) <= left
        if self.exact:
            assert max(0, answer) == left

    @rule(tenant=TENANTS)
    def used(self, tenant: str) -> None:
        (answer,) = self.ask_starts(("used", tenant, "", "", 0, 0))
        assert answer >= len(self.recent(tenant))
        if self.exact:
            assert answer == len(self.recent(tenant))

    @rule(ms=STEPS)
    def wait(self, ms: int) -> None:
        self.elapsed += ms
        self.pass_time(ms)

    @rule(ms=st.sampled_from([-1, -LIFE, -3600_000]))
    def set_the_clock_back(self, ms: int) -> None:
        self.exact = False
        self.pass_time(ms)

    @invariant()
    def no_window_holds_more_than_the_limit(self) -> None:
        for charges in getattr(self, "charges", {}).values():
            times = sorted(charges.values())
            assert all(
                last - first > LIFE for first, last in zip(times, times[LIMIT:], strict=False)
            )


class Holders(OnRedis):
    """Two processes that work under slots, over a bad network.

    Redis' clock and theirs run at the same speed; it is the work that must stop in time.
    """

    step = LIFE // 100

    def prepare(self) -> None:
        slots_module.QUOTA_SLOTS = SLOTS  # type: ignore[attr-defined]
        self.network = BadNetwork(_server().port)
        self.run(self.network.start())
        self.clock = ManualClock()
        self.working: set[int] = set()
        self.tickets: list[dict[int, Ticket]] = [{}, {}]
        self.number = 0
        self.processes = [self.process(), self.process()]
        self.pass_both(LIFE)

    def process(self) -> Slots:
        url = f"redis://127.0.0.1:{self.network.port}/0"

        async def start() -> Slots:
            client = SharedClient(url, tls=TlsSettings(), clock=self.clock)
            slots = Slots(client, KEYS, life=LIFE / 1000, clock=self.clock, watch=Watch())
            await slots.start()
            return slots

        started: Slots = self.run(start())
        return started

    def pass_both(self, ms: int) -> None:
        self.run(self._pass(ms))

    async def _pass(self, ms: int) -> None:
        for _ in range(0, ms, self.step):
            self.now += self.step
            await self.set_time()
            await self.clock.advance(self.step / 1000)
            await self.quiet()

    async def quiet(self) -> None:
        """Until every question is answered or has failed."""
        for process in self.processes:
            while (sender := process._ledger._sender) is not None:
                await asyncio.wait([sender])

    @rule(who=st.integers(0, 1), count=st.integers(1, 3), lose_answer=st.booleans())
    def take(self, who: int, count: int, lose_answer: bool) -> None:
        if lose_answer:
            self.network.lose_answer_to(SLOTS.digest.encode())
        for _ in range(count):
            self.run(self._take(who))

    async def _take(self, who: int) -> None:
        try:
            ticket = await self.processes[who].take("a", LIMIT, CANDIDATE.envelope)
        except BrokerUnavailable:
            return
        if not isinstance(ticket, Full):
            self.number += 1
            number = self.number
            self.working.add(number)
            self.tickets[who][number] = ticket
            ticket.on_loss(lambda: self.working.discard(number))

    @rule(
        who=st.integers(0, 1),
        pick=st.integers(0, 2),
        lose_answer=st.booleans(),
        refund=st.booleans(),
    )
    def end(self, who: int, pick: int, lose_answer: bool, refund: bool) -> None:
        """What there is to end depends on the network, so nothing is drawn for it."""
        if not self.tickets[who]:
            return
        number = sorted(self.tickets[who])[pick % len(self.tickets[who])]
        if lose_answer:
            self.network.lose_answer_to(SLOTS.digest.encode())
        self.working.discard(number)
        ticket = self.tickets[who].pop(number)
        self.run(ended(ticket, refund=refund))
        self.run(self.quiet())

    @rule(who=st.integers(0, 1))
    def crash(self, who: int) -> None:
        """The process and its work are gone; its slots stand."""
        old = self.processes[who]
        self.working -= self.tickets[who].keys()
        self.tickets[who] = {}
        self.run(_kill(old))
        self.processes[who] = self.process()

    @rule(ms=st.sampled_from([LIFE // 10, LIFE // 3, LIFE, 2 * LIFE]))
    def wait(self, ms: int) -> None:
        self.pass_both(ms)

    @rule(seconds=st.sampled_from([-3600.0, -1.0, 1.0, 3600.0]))
    def set_the_replicas_clock(self, seconds: float) -> None:
        """Lives are counted by clocks that nobody sets."""
        self.clock.synchronise(self.clock.now() + seconds)

    @rule()
    def cut(self) -> None:
        self.network.cut()

    @rule(ms=st.sampled_from([LIFE // 2, LIFE, LIFE + LIFE // 10]), who=st.integers(0, 1))
    def be_away(self, ms: int, who: int) -> None:
        """Redis cannot be reached for a time, and then somebody is quick."""
        self.network.down()
        self.pass_both(ms)
        self.network.up()
        self.run(self._take(who))

    @rule()
    def lose_a_renewal(self) -> None:
        self.network.lose_answer_to(SLOTS.digest.encode())

    @rule()
    def forget_everything(self) -> None:
        """Redis loses its data: who works then stops before others can have taken all slots."""
        self.network.down()
        self.pass_both(LIFE)
        _server().flush()
        self.run(self.set_time())
        self.network.up()

    @invariant()
    def never_more_work_than_slots(self) -> None:
        assert len(getattr(self, "working", ())) <= LIMIT

    @invariant()
    def never_more_slots_than_the_limit(self) -> None:
        if hasattr(self, "loop"):
            counted = ("ZCOUNT", KEYS.slots("a"), f"({self.now}", "+inf")
            assert self.run(self.client.execute(*counted)) <= LIMIT

    def teardown(self) -> None:
        if not hasattr(self, "processes"):
            return
        try:
            self.comes_back()
        finally:
            for process in self.processes:
                self.run(_kill(process))
            self.run(self.network.stop())
            slots_module.QUOTA_SLOTS = QUOTA_SLOTS  # type: ignore[attr-defined]
            super().teardown()

    def comes_back(self) -> None:
        """Whatever was lost: a life later all slots of the dead are free again."""
        self.network.up()
        self.network.lose_answer_to(b"")
        for who in (0, 1):
            for ticket in self.tickets[who].values():
                self.run(ended(ticket, refund=False))
        self.pass_both(2 * LIFE)
        assert self.run(self.processes[0].room("a", LIMIT)) == LIMIT


class Chargers(OnRedis):
    """Two processes that let requests start under a rate, over a bad network.

    A later gate refuses some, others are tried again, here or there. An answer or a refund that is
    lost may cost a charge, and is never a start too many.
    """

    def keys_of(self, tenant: str) -> Sequence[str]:
        return (KEYS.starts(tenant), KEYS.charged(tenant))

    def prepare(self) -> None:
        starts_module.QUOTA_STARTS = STARTS  # type: ignore[attr-defined]
        self.network = BadNetwork(_server().port)
        self.run(self.network.start())
        self.clocks = [ManualClock(START / 1000), ManualClock(START / 1000)]
        self.elapsed = 0
        self.started: dict[int, int] = {}
        self.settled: list[int] = []
        """When those started that are settled."""
        self.unsure: dict[int, int] = {}
        """Charged perhaps, when, and not started; it then counts from the charge."""
        self.processes = [self.process(who) for who in (0, 1)]

    def process(self, who: int) -> Starts:
        url = f"redis://127.0.0.1:{self.network.port}/0"
        clock = self.clocks[who]
        client = SharedClient(url, tls=TlsSettings(), clock=clock)
        return Starts(client, KEYS, window=LIFE / 1000, clock=clock, watch=Watch())

    @rule(
        who=st.integers(0, 1),
        number=st.integers(0, 20),
        refused=st.booleans(),
        settled=st.booleans(),
        lose=st.sampled_from(["nothing", "nothing", "charge", "refund"]),
    )
    def try_to_start(self, who: int, number: int, refused: bool, settled: bool, lose: str) -> None:
        self.run(self._try(self.processes[who], number, refused, settled, lose))

    async def _try(
        self, process: Starts, number: int, refused: bool, settled: bool, lose: str
    ) -> None:
        self._lose_next(lose == "charge")
        envelope = candidate(f"r-{number}", deadline=START / 1000 + 10**6).envelope
        try:
            ticket = await process.take("a", LIMIT, envelope)
        except BrokerUnavailable:
            if number not in self.started:
                self.unsure.setdefault(number, self.elapsed)
            return
        if isinstance(ticket, Full):
            return
        assert isinstance(ticket, Charge)
        charged_before = not ticket.paid
        assert charged_before == (number in self.started) or number in self.unsure
        if not refused:
            charged_at = self.unsure.pop(number, self.elapsed)
            self.started.setdefault(number, charged_at if charged_before else self.elapsed)
            ticket.release()
            if settled:
                ticket.settled()
                await self.quiet(process)
                self.settled.append(self.started.pop(number))
            return
        self._lose_next(lose == "refund")
        ticket.refund()
        await self.quiet(process)
        if not charged_before:
            self.unsure.pop(number, None)
            if lose == "refund":
                self.unsure[number] = self.elapsed

    def _lose_next(self, lost: bool) -> None:
        self.network.lose_answer_to(STARTS.digest.encode() if lost else b"")

    async def quiet(self, process: Starts) -> None:
        while (sender := process._ledger._sender) is not None:
            await asyncio.wait([sender])

    @rule(who=st.integers(0, 1))
    def crash(self, who: int) -> None:
        self.run(_kill_starts(self.processes[who]))
        self.processes[who] = self.process(who)

    @rule(ms=STEPS)
    def wait(self, ms: int) -> None:
        self.elapsed += ms
        self.pass_time(ms)
        for clock in self.clocks:
            self.run(clock.advance(ms / 1000))

    @rule(who=st.integers(0, 1), seconds=st.sampled_from([-3600.0, -1.0, 1.0, 3600.0]))
    def set_a_replicas_clock(self, who: int, seconds: float) -> None:
        self.clocks[who].synchronise(self.clocks[who].now() + seconds)

    @invariant()
    def no_window_holds_more_than_the_limit(self) -> None:
        times = sorted([*getattr(self, "started", {}).values(), *getattr(self, "settled", ())])
        assert all(last - first > LIFE for first, last in zip(times, times[LIMIT:], strict=False))

    @invariant()
    def who_has_not_started_has_paid_nothing(self) -> None:
        if not hasattr(self, "started"):
            return
        charged = self.run(self.client.execute("ZCARD", KEYS.charged("a")))
        assert len(self.started) <= charged <= len(self.started) + len(self.unsure)

    def teardown(self) -> None:
        if not hasattr(self, "processes"):
            return
        for process in self.processes:
            self.run(_kill_starts(process))
        self.run(self.network.stop())
        starts_module.QUOTA_STARTS = QUOTA_STARTS  # type: ignore[attr-defined]
        super().teardown()


async def _kill_starts(process: Starts) -> None:
    await process._ledger.flush(0)
    await process._ledger._client.close()


async def _kill(process: Slots) -> None:
    """End a process without giving it time for anything."""
    for task in process._tasks:
        task.cancel()
    await asyncio.wait(process._tasks)
    await process._ledger.flush(0)
    await process._ledger._client.close()


TestSlotHistory = SlotHistory.TestCase
TestSlotHistory.settings = FREQUENT
TestStartHistory = StartHistory.TestCase
TestStartHistory.settings = FREQUENT
TestChargers = Chargers.TestCase
TestChargers.settings = settings(FREQUENT, max_examples=25, stateful_step_count=30)
TestHolders = Holders.TestCase
TestHolders.settings = settings(FREQUENT, max_examples=25, stateful_step_count=20)
