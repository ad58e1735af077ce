"""Saturation follows the endpoint picker's formula: the scarcer resource, averaged over pods."""

from __future__ import annotations

import pytest

from async_processor.sim.pod_metrics import Load
from async_processor.sim.saturation import pool_saturation


def test_an_idle_pool_is_not_saturated() -> None:
    assert pool_saturation([Load(running=3), Load(running=0)]) == 0


@pytest.mark.parametrize(
    ("load", "saturation"),
    [
        (Load(running=4, waiting=5), 1.0),
        (Load(running=4, waiting=26, kv_usage=0.9), 5.2),
        (Load(running=4, kv_usage=0.4), 0.5),
        (Load(running=4, waiting=1, kv_usage=0.4), 0.5),
    ],
)
def test_the_scarcer_of_queue_and_cache_decides(load: Load, saturation: float) -> None:
    assert pool_saturation([load]) == pytest.approx(saturation)


def test_the_pool_is_the_average_of_its_pods() -> None:
    loads = [Load(running=1, waiting=10), Load(running=1, kv_usage=0.4)]
    assert pool_saturation(loads) == pytest.approx((2.0 + 0.5) / 2)


def test_a_pool_without_pods_is_saturated() -> None:
    assert pool_saturation([]) == 1.0
