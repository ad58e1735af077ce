"""Plans of faults follow from their seed, and hold what was asked for."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from async_processor.testing.chaos.catalogue import FAULTS
from async_processor.testing.chaos.plan import Step, mixed


def planned(seed: int, *, requests: int = 1000, kills: int = 100) -> list[Step]:
    return mixed(FAULTS, seed=seed, requests=requests, kills=kills, seconds=60, replicas=3)


@given(st.integers(0, 2**32))
def test_the_same_seed_gives_the_same_plan(seed: int) -> None:
    assert planned(seed) == planned(seed)
    assert planned(seed) != planned(seed + 1)


@given(st.integers(0, 100), st.integers(0, 10**5), st.integers(1, 500))
def test_a_plan_holds_every_request_and_every_kill(seed: int, requests: int, kills: int) -> None:
    plan = planned(seed, requests=requests, kills=kills)
    assert sum(step.submit for step in plan) == requests
    assert sum(FAULTS[step.fault].kills for step in plan) == kills


def test_every_fault_has_its_turn() -> None:
    turns = Counter(step.fault for step in planned(1, kills=60))
    assert turns.keys() == FAULTS.keys()
