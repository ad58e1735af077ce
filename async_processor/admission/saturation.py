"""What `prometheus-saturation` asks Prometheus, and how its budget comes from the answer."""

from __future__ import annotations

from typing import Final

from async_processor.admission.sensor_gate import BudgetRule
from async_processor.admission.settings import PrometheusSaturationGate
from async_processor.sensors.selector import Selector

METRICS: Final = (
    "llm_d_epp_flow_control_pool_saturation",
    "inference_extension_flow_control_pool_saturation",
)
"""The router's name for it, and the one before; the first that has series counts."""


def query(settings: PrometheusSaturationGate) -> str:
    """One saturation of the pool: the effective one where stages are told apart, else the largest.

    Router replicas are not of one mind about a pool; the fullest picture counts.
    """
    pool = {("inference_pool", settings.pool)}
    if settings.namespace:
        pool.add(("namespace", settings.namespace))
    return " or ".join(
        f"max({Selector(metric=metric, labels=frozenset(pool | stage))})"
        for metric in METRICS
        for stage in ({("stage", "effective")}, set[tuple[str, str]]())
    )


def rule(settings: PrometheusSaturationGate) -> BudgetRule:
    """Closed from `threshold` on; while nothing can be read, as if `fallback` had been."""
    read = BudgetRule(saturation=True, threshold=1 - settings.threshold)
    return BudgetRule(
        saturation=True,
        threshold=read.threshold,
        fallback=read.budget(read.room(settings.fallback)),
    )
