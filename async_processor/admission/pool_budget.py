"""What `prometheus-budget` asks Prometheus: how much of what the pool can take is not used yet.

The sources, in this order; the first that answers counts, all of them in one query:

1. what the router's flow control holds, of what the ready pods can take;
2. what waits in the pods by the router's account, on average of what one can take;
3. what runs in the pods by their own account, of what the ready pods can take.

Each has an older name too. Router replicas each hold their own queue, so those are summed up; of
the pods they all count the same, so the largest number counts. The pool's average queue is never
asked: it keeps its last value when the pool is empty, and so would look idle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from async_processor.admission.sensor_gate import BudgetRule
from async_processor.admission.settings import PrometheusBudgetGate
from async_processor.sensors.selector import Selector

QUEUED: Final = ("llm_d_epp_flow_control_queue_size", "inference_extension_flow_control_queue_size")
WAITING: Final = ("llm_d_epp_per_endpoint_queue_size", "inference_pool_per_pod_queue_size")
RUNNING: Final = ("vllm:num_requests_running",)
READY: Final = ("llm_d_epp_ready_endpoints", "inference_pool_ready_pods")


def query(settings: PrometheusBudgetGate) -> str:
    """1 is an idle pool, 0 a full one; no answer when no source has one, or no pod is ready."""
    by_pool, by_name = ("inference_pool", settings.pool), ("name", settings.pool)
    whole = f"{settings.max_concurrency:g}"
    ready = f"(({_together('max', READY, settings, by_name)}) > 0)"
    return " or ".join(
        (
            f"1 - ({_together('sum', QUEUED, settings, by_pool)}) / ({ready} * {whole})",
            f"1 - ({_together('avg', WAITING, settings, by_name)}) / {whole}",
            f"1 - ({_together('sum', RUNNING, settings, by_pool)}) / ({ready} * {whole})",
        )
    )


def _together(
    how: str, names: Sequence[str], settings: PrometheusBudgetGate, pool: tuple[str, str]
) -> str:
    """The series of the first name that there is, as one."""
    labels = {pool, ("namespace", settings.namespace)} if settings.namespace else {pool}
    return " or ".join(
        f"{how}({Selector(metric=name, labels=frozenset(labels))})" for name in names
    )


def rule(settings: PrometheusBudgetGate) -> BudgetRule:
    """The share `baseline` stays free."""
    return BudgetRule(threshold=settings.baseline, fallback=settings.fallback)


def closing_point(settings: PrometheusBudgetGate) -> float:
    """The requests per ready pod from which on the gate is closed."""
    return settings.max_concurrency * (1 - settings.baseline)
