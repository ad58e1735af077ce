"""Slots: never more than the workers, never more than the gate, and every one comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from async_processor.admission.base import Candidate, GateState, Verdict, WithoutLots
from async_processor.admission.live_number import LiveNumber
from async_processor.clock import SystemClock
from async_processor.dispatch.merge.random_robin import RandomRobin
from async_processor.dispatch.pool import Pool
from async_processor.dispatch.seat import Seat
from async_processor.dispatch.settings import QueueSettings
from async_processor.listeners import Leave, Listeners
from async_processor.telemetry.metrics import Metrics


class Valve(WithoutLots):
    """A gate that a test opens and closes."""

    def __init__(self, permits: int = 1_000_000) -> None:
        self._permits = permits
        self._wakes = Listeners[[]]()

    def open(self, permits: int) -> None:
        self._permits = permits
        self._wakes.tell()

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def budget(self) -> float:
        return 1.0 if self._permits else 0.0

    def permits(self, workers: int) -> int:
        return self._permits

    async def admit(self, candidate: Candidate) -> Verdict:
        raise NotImplementedError

    def subscribe(self, wake: Callable[[], None]) -> Leave:
        return self._wakes.add(wake)

    def state(self) -> GateState:
        return GateState(type="valve", budget=self.budget())


class InTurn(RandomRobin):
    """A merge policy whose choices a test can foresee."""

    def __init__(self) -> None:
        self._turn = 0

    def choose(self, queues: Sequence[QueueSettings], now: float) -> int:
        self._turn += 1
        return self._turn % len(queues)


def queue(name: str = "q") -> QueueSettings:
    return QueueSettings(queue_name=name, igw_base_url="http://localhost:8000")


def pool(workers: int, gate: Valve | None = None) -> Pool:
    return Pool(
        "default",
        LiveNumber(workers),
        gate or Valve(),
        InTurn(),
        Metrics().pool("default"),
        SystemClock(),
    )


def leave(seats: Sequence[Seat]) -> None:
    for seat in seats:
        seat.leave()


async def test_a_bid_gets_what_it_wants_or_what_is_free() -> None:
    slots = pool(4)
    assert len(await slots.acquire(queue(), 3, 60.0)) == 3
    assert len(await slots.acquire(queue(), 3, 60.0)) == 1


async def test_a_bid_waits_until_a_slot_comes_back() -> None:
    slots = pool(1)
    first = await slots.acquire(queue(), 1, 60.0)
    waiting = asyncio.create_task(slots.acquire(queue(), 1, 60.0))
    await asyncio.sleep(0)
    assert not waiting.done()
    leave(first)
    assert len(await waiting) == 1


async def test_leaving_twice_frees_one_slot() -> None:
    slots = pool(2)
    (first, _) = await slots.acquire(queue(), 2, 60.0)
    first.dispatched()
    first.leave()
    first.leave()
    assert slots.free_slots == 1


async def test_slots_are_shared_among_the_queues_that_wait() -> None:
    gate = Valve(0)
    slots = pool(8, gate)
    bids = [asyncio.create_task(slots.acquire(queue(name), 8, 60.0)) for name in ("a", "b")]
    await asyncio.sleep(0)
    gate.open(8)
    assert [len(seats) for seats in await asyncio.gather(*bids)] == [4, 4]


async def test_a_bid_in_vain_ends_with_nothing_and_takes_nothing() -> None:
    gate = Valve(0)
    slots = pool(2, gate)
    assert await slots.acquire(queue(), 2, 0.01) == ()
    gate.open(2)
    assert len(await slots.acquire(queue(), 2, 60.0)) == 2


async def test_the_gate_bounds_what_is_granted_and_not_yet_dispatched() -> None:
    gate = Valve(2)
    slots = pool(8, gate)
    granted = await slots.acquire(queue(), 8, 60.0)
    assert len(granted) == 2
    waiting = asyncio.create_task(slots.acquire(queue(), 8, 60.0))
    await asyncio.sleep(0)
    assert not waiting.done()
    granted[0].dispatched()  # from here on the gate counts it
    assert len(await _after(gate, 2, waiting)) == 1


async def test_a_slot_that_the_gate_counts_itself_is_offered_to_the_next_at_once() -> None:
    gate = Valve(2)
    slots = pool(8, gate)
    first, _ = await slots.acquire(queue(), 2, 60.0)
    # The gate has admitted one and counts it, and has room again since another has ended.
    waiting = asyncio.create_task(slots.acquire(queue(), 1, 60.0))
    await asyncio.sleep(0)
    assert not waiting.done()
    first.dispatched()
    assert len(await waiting) == 1


async def _after(
    gate: Valve, permits: int, waiting: asyncio.Task[Sequence[Seat]]
) -> Sequence[Seat]:
    gate.open(permits)
    return await waiting


async def test_a_closed_gate_offers_nothing_until_it_opens() -> None:
    gate = Valve(0)
    slots = pool(4, gate)
    waiting = asyncio.create_task(slots.acquire(queue(), 4, 60.0))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert len(await _after(gate, 3, waiting)) == 3


async def test_a_cancelled_bid_leaves_its_slots_to_the_others() -> None:
    slots = pool(2)
    everything = await slots.acquire(queue(), 2, 60.0)
    cancelled = asyncio.create_task(slots.acquire(queue(), 2, 60.0))
    other = asyncio.create_task(slots.acquire(queue(), 2, 60.0))
    await asyncio.sleep(0)
    leave(everything)  # granted, but not yet taken
    cancelled.cancel()
    other.cancel()
    await asyncio.gather(cancelled, other, return_exceptions=True)
    assert len(await slots.acquire(queue(), 2, 60.0)) == 2


def test_random_robin_gives_every_bidder_its_chance() -> None:
    policy, queues = RandomRobin(), [queue("a"), queue("b"), queue("c")]
    assert {policy.choose(queues, 0.0) for _ in range(200)} == {0, 1, 2}


@given(
    workers=st.integers(1, 8),
    steps=st.lists(st.tuples(st.integers(1, 10), st.booleans(), st.integers(0, 9)), max_size=30),
)
def test_no_interleaving_hands_out_more_slots_than_there_are_workers(
    workers: int, steps: list[tuple[int, bool, int]]
) -> None:
    async def play() -> None:
        gate = Valve()
        slots = pool(workers, gate)
        out: list[Seat] = []
        bids: set[asyncio.Task[Sequence[Seat]]] = set()
        for want, give, permits in steps:
            gate.open(permits)
            bids.add(asyncio.create_task(slots.acquire(queue(), want, 60.0)))
            await asyncio.sleep(0)
            if give and out:
                out.pop().leave()
            await asyncio.sleep(0)
            out += [seat for bid in bids if bid.done() for seat in bid.result()]
            bids = {bid for bid in bids if not bid.done()}
            assert 0 <= len(out) <= workers
        for bid in bids:
            bid.cancel()
        await asyncio.gather(*bids, return_exceptions=True)
        gate.open(1_000)
        leave(out)
        assert len(await slots.acquire(queue(), 100, 60.0)) == workers

    asyncio.run(play())
