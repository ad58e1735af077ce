"""`prometheus-saturation`: what it asks, and the budget that follows from the answer."""

from __future__ import annotations

import pytest

from async_processor.admission import saturation
from async_processor.admission.build import GateContext, build_gate
from async_processor.admission.live_number import LiveNumber
from async_processor.admission.settings import PrometheusSaturationGate
from async_processor.clock import SystemClock
from async_processor.errors import ConfigurationError


def test_the_effective_stage_first_then_the_largest_then_the_older_name() -> None:
    settings = PrometheusSaturationGate(pool="p", namespace='n"s')
    labels = 'inference_pool="p",namespace="n\\"s"'
    new, old = saturation.METRICS
    assert saturation.query(settings).split(" or ") == [
        f'max({new}{{{labels},stage="effective"}})',
        f"max({new}{{{labels}}})",
        f'max({old}{{{labels},stage="effective"}})',
        f"max({old}{{{labels}}})",
    ]


@pytest.mark.parametrize(
    ("fallback", "budget"), [(0.0, 0.8), (0.5, 0.3), (0.8, 0.0), (0.9, 0.0), (1.0, 0.0)]
)
def test_the_fallback_is_a_saturation_to_assume(fallback: float, budget: float) -> None:
    rule = saturation.rule(PrometheusSaturationGate(pool="p", fallback=fallback))
    assert rule.fallback == pytest.approx(budget)
    assert rule.threshold == pytest.approx(0.2)


def test_a_gate_over_prometheus_needs_one() -> None:
    context = GateContext(prometheus=None, clock=SystemClock())
    with pytest.raises(ConfigurationError, match=r"prometheus\.url: is missing"):
        build_gate(PrometheusSaturationGate(pool="p"), context, workers=LiveNumber(1))
