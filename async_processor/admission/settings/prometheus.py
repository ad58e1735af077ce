"""Gates over a Prometheus."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from async_processor.admission.settings.section import GateSection
from async_processor.fields import NonEmpty, Number, Positive, Share


class PrometheusQueryGate(GateSection):
    """The budget is the answer of a query."""

    type: Literal["prometheus-query"] = "prometheus-query"
    """The budget is the answer of a query."""
    query: NonEmpty
    """PromQL with one sample as its answer, the budget in [0, 1]."""
    fallback: Share = 0.0
    """The budget while Prometheus cannot be read."""
    pool: str = ""
    """The `inference_pool` label of this gate's metrics; nothing else."""


class PrometheusSaturationGate(GateSection):
    """Closes as the router's flow control reports the pool saturated."""

    type: Literal["prometheus-saturation"] = "prometheus-saturation"
    """Closes as the router's flow control reports the pool saturated."""
    pool: NonEmpty
    """The `inference_pool` label of the router's metrics."""
    namespace: str = ""
    """The `namespace` label of the router's metrics; empty: any."""
    threshold: Annotated[Number, Field(gt=0, le=1)] = 0.8
    """The saturation from which on the gate is closed."""
    fallback: Share = 0.0
    """The saturation to assume while Prometheus cannot be read: 0 is open, 1 closed."""


class PrometheusBudgetGate(GateSection):
    """The budget is what the router's queue, or the pods', leave of what the pool can take."""

    type: Literal["prometheus-budget"] = "prometheus-budget"
    """The budget is what the router's queue, or the pods', leave of what the pool can take."""
    pool: NonEmpty
    """The pool's name: the label inference_pool, or name, of the metrics."""
    namespace: str = ""
    """The `namespace` label of the metrics; empty: any."""
    max_concurrency: Positive = 100.0
    """The requests that one ready pod takes; closed from this times 1 - baseline on."""
    baseline: Annotated[Number, Field(ge=0, lt=1)] = 0.05
    """Subtracted from the budget, so that this share of the pool stays free."""
    fallback: Share = 0.0
    """The budget while Prometheus cannot be read."""
