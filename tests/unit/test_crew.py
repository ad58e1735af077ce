"""What the processes of one replica divide adds up to what the replica has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_processor.admission.build import GateContext, build_gate
from async_processor.admission.census import ALONE
from async_processor.admission.crew import ONE_PROCESS, Crew
from async_processor.admission.limits import PARTS, own_starts
from async_processor.admission.live_number import LiveNumber
from async_processor.admission.settings import ConstantGate, LocalMaxConcurrencyGate
from async_processor.clock import SystemClock
from async_processor.config.load import validated
from async_processor.config.settings import Settings
from async_processor.daemon.build import build
from async_processor.daemon.reload import take_over
from async_processor.dispatch.merge.random_robin import RandomRobin
from async_processor.dispatch.pool import Pool
from async_processor.errors import ConfigurationError
from async_processor.telemetry.metrics import Metrics
from async_processor.testing.clock import ManualClock

numbers = st.integers(1, 16)


def crew(processes: int) -> list[Crew]:
    return [Crew(processes=processes, rank=rank) for rank in range(processes)]


@given(numbers, st.integers(1, 300), st.text(min_size=1, max_size=5))
def test_workers_and_limits_add_up(processes: int, whole: int, pool: str) -> None:
    parts = [each.portion(pool).of(whole) for each in crew(processes)]
    assert sum(parts) == whole
    assert max(parts) - min(parts) <= 1


@given(numbers, numbers, st.integers(1, 20))
def test_a_limit_is_never_where_the_workers_are_not(
    processes: int, workers: int, limit: int
) -> None:
    """So that dividing both costs no call that both together would allow."""
    portions = [each.portion("p") for each in crew(processes)]
    usable = sum(min(portion.of(workers), portion.of(limit)) for portion in portions)
    assert usable == min(workers, limit)


@given(numbers, numbers, st.floats(0, 1000))
def test_starts_follow_the_workers(processes: int, workers: int, starts: float) -> None:
    size = LiveNumber(workers)
    shares = []
    for each in crew(processes):
        portion = each.census("p", size).portion()
        own = own_starts(starts, portion)
        assert own is not None
        assert bool(own) <= bool(each.portion("p").of(workers)), "starts that nobody can use"
        shares.append(own)
    assert starts - (processes + 1) / PARTS <= sum(shares) <= starts + 1 / PARTS


@given(numbers, numbers, st.floats(0, 1))
def test_budgets_shown_add_up_to_the_budget(processes: int, workers: int, budget: float) -> None:
    size = LiveNumber(workers)
    shares = [each.census("p", size).portion().of_budget(budget) for each in crew(processes)]
    assert sum(shares) == pytest.approx(budget)


def test_workers_of_many_small_pools_are_spread() -> None:
    first, second = crew(2)
    pools = [f"pool-{number}" for number in range(40)]
    taken = sum(first.portion(pool).of(1) for pool in pools)
    assert 0 < taken < 40
    assert taken + sum(second.portion(pool).of(1) for pool in pools) == 40


def test_one_process_divides_nothing() -> None:
    assert ONE_PROCESS.census("p", LiveNumber(3)) is ALONE
    assert ONE_PROCESS.portion("p").of(3) == 3


def test_a_local_limit_is_divided_and_an_open_gate_is_not() -> None:
    permits = []
    for each in crew(2):
        context = GateContext(prometheus=None, clock=ManualClock(), crew=each)
        limit = build_gate(LocalMaxConcurrencyGate(limit=5), context, workers=LiveNumber(8))
        permits.append(limit.permits(8))
        assert build_gate(ConstantGate(), context, workers=LiveNumber(8)).permits(8) == 8
    assert sorted(permits) == [2, 3]


async def test_a_pool_has_its_part_of_the_workers_and_shows_the_whole_to_its_gate() -> None:
    metrics, size = Metrics(), LiveNumber(5)
    gate = build_gate(
        ConstantGate(), GateContext(prometheus=None, clock=SystemClock()), workers=size
    )
    pools = [
        Pool("p", size, gate, RandomRobin(), metrics.pool("p"), SystemClock(), each.portion("p"))
        for each in crew(2)
    ]
    assert sorted(pool.workers for pool in pools) == [2, 3]
    for pool in pools:
        pool.reconfigure(8, gate, RandomRobin())
    assert [pool.workers for pool in pools] == [4, 4]
    assert size.value == 8


def of_one_pool(workers: int, *, shared: bool) -> Settings:
    gate = {"type": "local-max-concurrency", "limit": 1, "shared": shared}
    queues = [{"igw_base_url": "http://gw"}]
    pools = [{"workers": workers, "gate": gate}]
    document = {"processes": "auto", "transport": {"queues": queues}, "worker_pools": pools}
    return validated(document, {})


@pytest.mark.parametrize("rank", [0, 1])
async def test_no_reload_leaves_a_process_with_a_part_of_a_shared_gate_and_no_worker(
    rank: int,
) -> None:
    parts = build(of_one_pool(2, shared=True), crew=Crew(processes=2, rank=rank))
    with pytest.raises(ConfigurationError, match=r"worker_pools\[0\].workers: got 1, must be 2"):
        await take_over(parts.topology, parts.shared, of_one_pool(1, shared=True))
    assert parts.topology.settings.worker_pools[0].workers == 2
    await take_over(parts.topology, parts.shared, of_one_pool(1, shared=False))
    assert parts.topology.settings.worker_pools[0].workers == 1
    await parts.topology.stop()
