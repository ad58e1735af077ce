"""On a reading as many start as it allows, through whichever of the gates that go by it: never
more, in the long run not fewer, no bursts, and each request counts once."""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from async_processor.admission.limits import start_limit
from async_processor.admission.start_ledger import Start, StartAllowance, StartLedger

budgets = st.floats(0, 1, exclude_max=True)
pool_sizes = st.integers(1, 300)


def alone() -> StartAllowance:
    """Of a gate that shares its source with none."""
    return StartAllowance(StartLedger())


def renew(allowance: StartAllowance, starts: float | None, taken_at: float) -> None:
    """A new reading."""
    allowance.allow(starts, reading=object(), knows_until=taken_at)


def take(allowance: StartAllowance, now: float) -> Start | None:
    """A request that no gate has seen yet."""
    return allowance.take(object(), now)


def drain(allowance: StartAllowance, now: float, demand: int = 10_000) -> int:
    """Start as many as may start."""
    started = 0
    while started < demand and take(allowance, now):
        started += 1
    return started


def limited(budget: float, workers: int) -> float:
    starts = start_limit(budget, workers)
    assert starts is not None
    return starts


@given(st.lists(budgets, min_size=1, max_size=60), pool_sizes)
def test_in_the_long_run_as_many_start_as_the_readings_allowed(
    readings: list[float], workers: int
) -> None:
    allowance, allowed, started = alone(), 0.0, 0
    for moment, budget in enumerate(readings):
        renew(allowance, limited(budget, workers), moment)
        allowed += limited(budget, workers)
        started += drain(allowance, moment)
        assert allowed - 1.001 <= started <= allowed + 0.001


@given(st.lists(st.tuples(budgets, st.integers(0, 50)), min_size=1, max_size=60), pool_sizes)
def test_no_demand_gets_more_than_one_reading_allows(
    steps: list[tuple[float, int]], workers: int
) -> None:
    allowance = alone()
    for moment, (budget, demand) in enumerate(steps):
        starts = limited(budget, workers)
        renew(allowance, starts, moment)
        assert drain(allowance, moment, demand) <= math.ceil(starts + 1e-6)


@given(st.lists(st.tuples(budgets, st.integers(0, 50)), min_size=2, max_size=40), pool_sizes)
def test_no_window_of_readings_gets_more_than_it_allows_and_one(
    steps: list[tuple[float, int]], workers: int
) -> None:
    allowance, allowed, started = alone(), [0.0], [0]
    for moment, (budget, demand) in enumerate(steps):
        renew(allowance, limited(budget, workers), moment)
        allowed.append(allowed[-1] + limited(budget, workers))
        started.append(started[-1] + drain(allowance, moment, demand))
    for begin in range(len(steps)):
        for end in range(begin + 1, len(started)):
            assert started[end] - started[begin] < allowed[end] - allowed[begin] + 1.001


@given(
    st.lists(
        st.tuples(budgets, st.lists(st.sampled_from(["take", "refund"]), max_size=20)),
        min_size=1,
        max_size=30,
    ),
    pool_sizes,
)
def test_refunds_whenever_they_come_let_no_reading_start_more_than_it_allows(
    steps: list[tuple[float, list[str]]], workers: int
) -> None:
    allowance, held, now = alone(), list[Start](), 0.0
    for budget, actions in steps:
        now += 1
        starts, taken_at = limited(budget, workers), now
        renew(allowance, starts, taken_at)
        for action in actions:
            now += 0.001
            if action == "refund" and held:
                allowance.refund(held.pop())
            elif action == "take" and (start := take(allowance, now)):
                held.append(start)
        assert sum(start.at >= taken_at for start in held) <= math.ceil(starts + 1e-6)


def test_a_small_budget_is_slow_and_not_zero() -> None:
    allowance = alone()
    started = []
    for moment in range(40):
        renew(allowance, limited(0.1, 1), moment)
        started += [moment] * drain(allowance, moment)
    assert len(started) == 4
    assert {later - earlier for earlier, later in pairwise(started)} == {10}


def test_one_start_that_was_saved_up_waits_for_its_request() -> None:
    allowance = alone()
    for moment in range(35):
        renew(allowance, limited(0.1, 1), moment)
    assert allowance.available() == 1


def test_long_idleness_builds_no_burst() -> None:
    allowance = alone()
    for moment in range(1000):
        renew(allowance, limited(0.25, 10), moment)
    assert drain(allowance, 1000) == 3


def test_a_budget_of_0_starts_nothing_and_keeps_the_fraction() -> None:
    allowance = alone()
    renew(allowance, 0.75, 1)
    renew(allowance, 0.0, 2)
    assert drain(allowance, 2) == 0
    renew(allowance, 0.25, 3)
    assert drain(allowance, 3) == 1


def test_a_full_budget_sets_no_limit() -> None:
    allowance = alone()
    renew(allowance, start_limit(1.0, 4), 0)
    assert allowance.available() is None
    assert drain(allowance, 0, demand=500) == 500


def test_nothing_starts_before_the_first_reading() -> None:
    assert drain(alone(), 0) == 0


@pytest.mark.parametrize("budget_before", [0.5, 1.0])
def test_starts_that_a_reading_cannot_know_of_count_against_it(budget_before: float) -> None:
    allowance = alone()
    renew(allowance, start_limit(budget_before, 10), 0)
    for now in (1.0, 4.9, 5.0, 5.5):
        assert take(allowance, now)
    renew(allowance, 4.0, 5.0)  # asked at 5.0, answered later
    assert drain(allowance, 6) == 2


def test_a_refund_within_a_reading_is_as_if_nothing_had_been_taken() -> None:
    allowance = alone()
    renew(allowance, 2.0, 0)
    start = take(allowance, 1)
    assert start
    allowance.refund(start)
    assert drain(allowance, 2) == 2


def test_a_refund_after_its_reading_is_over_changes_nothing() -> None:
    allowance = alone()
    for moment in range(10):
        renew(allowance, 0.1, moment)
    start = take(allowance, 9)
    assert start
    renew(allowance, 0.1, 10)
    assert allowance.available() == 0
    allowance.refund(start)
    assert allowance.available() == 0
    for moment in range(11, 20):
        renew(allowance, 0.1, moment)
    assert drain(allowance, 20) == 1, "the next fractions add up as ever"


class Gates:
    """Allowances over one source, each with a part of the workers that its budget is of."""

    def __init__(self, *starts: float | None, pools: tuple[tuple[str, bool], ...] = ()) -> None:
        ledger = StartLedger()
        places = pools or (("", False),) * len(starts)
        self.all = [StartAllowance(ledger, pool=pool, last=last) for pool, last in places]
        self.turn(*starts, at=0.0)

    def turn(self, *starts: float | None, at: float) -> None:
        reading = object()
        for allowance, each in zip(self.all, starts, strict=True):
            allowance.allow(each, reading=reading, knows_until=at)

    @property
    def available(self) -> list[int | None]:
        return [allowance.available() for allowance in self.all]


def test_a_start_through_any_gate_counts_for_all_at_once() -> None:
    gates = Gates(5.0, 5.0, 8.0)
    assert take(gates.all[0], 1)
    assert gates.available == [4, 4, 7]
    assert [drain(gate, 1) for gate in gates.all] == [4, 0, 3]
    gates.turn(5.0, 5.0, 8.0, at=2.0)
    assert gates.available == [5, 5, 8]


def test_starts_under_a_budget_that_sets_no_limit_count_for_those_that_set_one() -> None:
    gates = Gates(None, 5.0)
    assert drain(gates.all[0], 1, demand=7) == 7
    assert gates.available == [None, 0]


def test_a_request_that_passes_several_gates_counts_once() -> None:
    gates = Gates(5.0, 3.0)
    outer, inner = gates.all
    requests = [object() for _ in range(5)]
    assert all(outer.take(request, 1) for request in requests)
    assert gates.available == [0, 0]
    # The first three may pass the narrower gate too, and nobody else.
    assert [bool(inner.take(request, 1)) for request in requests] == [True] * 3 + [False] * 2
    assert not take(inner, 1)


def test_what_several_gates_let_through_ends_with_the_last_refund() -> None:
    gates, request = Gates(1.0, 1.0), object()
    starts = [gate.take(request, 1) for gate in gates.all]
    for gate, start in zip(gates.all, starts, strict=True):
        assert start
        assert gates.available == [0, 0]
        gate.refund(start)
    assert gates.available == [1, 1]


def test_what_ran_counts_whatever_else_is_refunded() -> None:
    gates, request = Gates(1.0, 1.0), object()
    first, second = (gate.take(request, 1) for gate in gates.all)
    assert first
    assert second
    gates.all[0].release(first)
    gates.all[1].refund(second)
    assert gates.available == [0, 0]


def test_a_request_that_comes_again_is_another_start() -> None:
    gates, request = Gates(3.0), object()
    start = gates.all[0].take(request, 1)
    assert start
    gates.all[0].release(start)
    assert gates.all[0].take(request, 1)
    assert gates.available == [1]


def test_a_request_that_waited_over_a_reading_starts_when_the_last_gate_lets_it() -> None:
    gates, request = Gates(3.0, 3.0), object()
    assert gates.all[0].take(request, 1)
    assert gates.all[1].take(request, 3)  # while a reading of the second 2 is on its way
    gates.turn(3.0, 3.0, at=2.0)
    assert gates.available == [2, 2]
    gates.turn(3.0, 3.0, at=4.0)
    assert gates.available == [3, 3]
    assert gates.all[1].take(request, 5)
    assert gates.available == [2, 2]


def test_a_pools_gate_has_room_for_those_that_come_to_it_from_its_own_queues() -> None:
    gates = Gates(5.0, 5.0, 5.0, pools=(("a", False), ("a", True), ("b", True)))
    queue, pool, _ = gates.all
    requests = [object() for _ in range(4)]
    for request in requests:
        assert queue.take(request, 1)
    assert gates.available == [1, 5, 1]
    assert pool.take(requests[0], 1)
    assert gates.available == [1, 4, 1]
    gates.turn(5.0, 5.0, 5.0, at=2.0)
    assert gates.available == [5, 5, 5]


def test_a_refund_wakes_whom_it_makes_room_for_whichever_their_gate() -> None:
    gates, woken = Gates(1.0, 1.0, 0.5), list[int]()
    for number, gate in enumerate(gates.all):
        gate.subscribe(partial(woken.append, number))
    first, second, closed = gates.all
    start = take(first, 1)
    assert start
    assert not take(second, 1)
    assert not take(closed, 1)
    first.refund(start)
    assert woken == [1]  # nobody waited at the first, and the third still has no room
    start = take(first, 1)
    assert start
    first.refund(start)
    assert woken == [1]


def test_a_request_that_a_later_gate_holds_back_wakes_nobody_by_its_own_refund() -> None:
    gates, woken = Gates(5.0, 1.0), list[str]()
    outer, inner = gates.all
    inner.subscribe(lambda: woken.append("woken"))
    assert take(inner, 1)
    request = object()
    start = outer.take(request, 1)
    assert start
    assert not inner.take(request, 1)
    outer.refund(start)
    assert woken == []


def test_a_request_that_its_pools_gate_holds_back_is_not_woken_by_those_still_to_come() -> None:
    gates, woken = Gates(5.0, 1.0, pools=(("a", False), ("a", True))), list[str]()
    queue, pool = gates.all
    pool.subscribe(partial(woken.append, "woken"))
    first, second = object(), object()
    assert queue.take(first, 1)
    start = queue.take(second, 1)
    assert start
    assert not pool.take(second, 1)
    queue.refund(start)
    assert woken == []
    assert pool.take(first, 1)


class Sharing(RuleBasedStateMachine):
    """Several gates on one source; requests pass one or two of them, run, or are given back."""

    requests: Bundle[list[tuple[int, Start]]] = Bundle("requests")

    @initialize(starts=st.lists(st.floats(0, 6), min_size=2, max_size=4))
    def begin(self, starts: list[float]) -> None:
        ledger = StartLedger()
        self.gates = [StartAllowance(ledger) for _ in starts]
        self.now = 0.0
        self.ran: list[float] = []
        self.held: list[list[tuple[int, Start]]] = []
        self.totals = [0.0] * len(starts)
        self.all_starts = 0
        self.turn(starts)

    def turn(self, starts: list[float]) -> None:
        self.now += 1
        self.taken_at = self.now
        self.starts, reading = starts, object()
        for gate, each in zip(self.gates, starts, strict=True):
            gate.allow(each, reading=reading, knows_until=self.taken_at)

    @rule(data=st.data())
    def reading(self, data: st.DataObject) -> None:
        size = len(self.gates)
        self.turn(data.draw(st.lists(st.floats(0, 6), min_size=size, max_size=size)))

    @rule(target=requests, data=st.data())
    def ask(
        self, data: st.DataObject
    ) -> list[tuple[int, Start]] | MultipleResults[list[tuple[int, Start]]]:
        ways = st.lists(st.sampled_from(range(len(self.gates))), min_size=1, unique=True)
        request, tickets = object(), list[tuple[int, Start]]()
        self.now += 0.001
        for number in data.draw(ways):
            free = self.gates[number].available()
            start = self.gates[number].take(request, self.now)
            if not tickets:
                assert bool(start) == (free != 0)
            if start is None:
                for taken, counted in reversed(tickets):
                    self.gates[taken].refund(counted)
                return multiple()
            tickets.append((number, start))
        self.held.append(tickets)
        return tickets

    @rule(tickets=consumes(requests), ran=st.booleans())
    def end(self, tickets: list[tuple[int, Start]], ran: bool) -> None:
        self.held.remove(tickets)
        if ran:
            self.ran.append(tickets[0][1].at)
        before = [gate.available() or 0 for gate in self.gates]
        counted = tickets[0][1].at >= self.taken_at
        for number, start in reversed(tickets):
            (self.gates[number].release if ran else self.gates[number].refund)(start)
        after = [gate.available() or 0 for gate in self.gates]
        if ran:
            assert after == before
        elif counted:
            assert all(new - old in (0, 1) for new, old in zip(after, before, strict=True))

    @invariant()
    def no_more_start_than_the_largest_allowance(self) -> None:
        if not hasattr(self, "gates"):
            return
        assert self.since <= math.ceil(max(self.starts) + 1e-6)

    @invariant()
    def each_counts_once(self) -> None:
        if not hasattr(self, "gates"):
            return
        for gate, starts in zip(self.gates, self.starts, strict=True):
            free = gate.available() or 0
            assert max(0, math.floor(starts) - self.since) <= free
            assert free <= max(0, math.ceil(starts + 1e-6) - self.since)

    @property
    def since(self) -> int:
        """How many started since the reading, by the test's own count."""
        held = [tickets[0][1].at for tickets in self.held]
        return sum(at >= self.taken_at for at in (*held, *self.ran))


TestSharing = Sharing.TestCase
TestSharing.settings = settings(max_examples=40, stateful_step_count=30)


@given(st.lists(st.floats(0, 3), min_size=1, max_size=40), st.integers(2, 4))
def test_fractions_add_up_over_the_gates_too(readings: list[float], size: int) -> None:
    gates, started = Gates(*[0.0] * size), 0
    for moment, starts in enumerate(readings, start=1):
        gates.turn(*[starts] * size, at=moment)
        started += drain(gates.all[moment % size], moment)
        assert sum(readings[:moment]) - 1.001 <= started <= sum(readings[:moment]) + 0.001
