"""Interactive traffic comes in bursts, repeats under a seed, and is summed up in percentiles."""

from __future__ import annotations

import random
from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_processor.sim.arrivals import Rhythm, arrivals
from async_processor.sim.percentiles import percentile
from async_processor.sim.traffic import Chat, summarise


def moments(rhythm: Rhythm, seconds: float, seed: int = 3) -> list[float]:
    return list(takewhile(lambda moment: moment < seconds, arrivals(rhythm, random.Random(seed))))


def test_arrivals_ascend_and_repeat_under_the_same_seed() -> None:
    first = moments(Rhythm(), 100)
    assert first == sorted(first)
    assert first == moments(Rhythm(), 100)
    assert first != moments(Rhythm(), 100, seed=4)


def test_the_mean_rate_is_that_of_bursts_and_pauses_together() -> None:
    rhythm = Rhythm(burst_seconds=2, pause_seconds=2, burst_rate=20, pause_rate=2)
    assert len(moments(rhythm, 4000)) / 4000 == pytest.approx(11, rel=0.1)


def test_requests_come_in_bursts() -> None:
    """Far more seconds without any request than a steady stream of the same rate would have."""
    rhythm = Rhythm(burst_seconds=4, pause_seconds=4, burst_rate=10, pause_rate=0)
    seconds = {int(moment) for moment in moments(rhythm, 1000)}
    assert 300 < 1000 - len(seconds) < 600


@pytest.mark.parametrize(
    "numbers", [{"burst_seconds": 0}, {"burst_rate": -1}, {"burst_rate": 0, "pause_rate": 0}]
)
def test_a_rhythm_that_cannot_be_is_refused(numbers: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        Rhythm(**numbers)


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1))
def test_a_percentile_is_a_value_that_its_share_does_not_exceed(
    values: list[float], share: float
) -> None:
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-6


def test_percentiles_of_a_hundred_values() -> None:
    values = [float(number) for number in range(1, 101)]
    assert [percentile(values, share) for share in (0.5, 0.95, 0.99, 1)] == [50, 95, 99, 100]
    assert percentile([], 0.5) is None


def test_a_report_counts_failures_and_measures_the_rest() -> None:
    chats = [
        Chat(ended_at=1, first_token=0.1, latency=1.0, failed=False),
        Chat(ended_at=2, first_token=0.3, latency=3.0, failed=False),
        Chat(ended_at=3, first_token=None, latency=60.0, failed=True),
    ]
    report = summarise(chats)
    assert (report.requests, report.failures) == (3, 1)
    assert (report.first_token_p50, report.first_token_p99) == (0.1, 0.3)
    assert (report.latency_p50, report.latency_p95) == (1.0, 3.0)
