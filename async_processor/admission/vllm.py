"""What `vllm-pool` reads: the pods themselves, or what a Prometheus has scraped of them."""

from __future__ import annotations

from typing import Final

import httpx

from async_processor.admission.sensor_gate import BudgetRule
from async_processor.admission.settings import VllmPoolGate
from async_processor.sensors.vllm import KV_CACHE, RUNNING, WAITING, PodLimits, PodsSource

REMEMBERED: Final = "2m"
"""For so long a pod that Prometheus cannot scrape any more counts as full, and then as gone."""


def source(settings: VllmPoolGate, client: httpx.AsyncClient) -> PodsSource:
    """The pods' pages; gates that differ in nothing else share it."""
    limits = PodLimits(
        kv_cache=settings.max_kv_cache,
        waiting=settings.max_waiting_per_pod,
        running=settings.max_running_per_pod,
    )
    pages = tuple(page(url) for url in settings.urls)
    return PodsSource(urls=pages, dns=settings.dns, limits=limits, client=client)


def page(url: str) -> str:
    """The metrics page of a server."""
    base = url.rstrip("/")
    return base if base.endswith("/metrics") else f"{base}/metrics"


def rule(settings: VllmPoolGate) -> BudgetRule:
    """The room is the budget."""
    return BudgetRule(fallback=settings.fallback, measured=True)


def query(settings: VllmPoolGate) -> str:
    """The same room as the pods' pages give: the mean of the pods' smallest remaining shares.

    A pod without a usable value has no share left, and with no pod at all there is no answer.
    """
    pods, waiting = settings.selector, settings.max_waiting_per_pod
    caches = " or ".join(f"max by (instance) ({name}{{{pods}}})" for name in KV_CACHE)
    queued, running = (f"sum by (instance) ({name}{{{pods}}})" for name in (WAITING, RUNNING))
    shares = {
        "kv_cache": _remaining(f"({caches})", settings.max_kv_cache),
        "waiting": _remaining(queued, waiting) if waiting else f"({queued} == bool 0)",
    }
    if settings.max_running_per_pod is not None:
        shares["running"] = _remaining(running, settings.max_running_per_pod)
    known = f"0 * sum by (instance) (last_over_time({RUNNING}{{{pods}}}[{REMEMBERED}]))"
    by_limit = " or ".join(
        f'label_replace({share} or {known}, "limit", "{limit}", "", "")'
        for limit, share in shares.items()
    )
    room = f"avg(min by (instance) ({by_limit}))"
    if not waiting:
        room += f" * (sum({WAITING}{{{pods}}}) == bool 0)"
    return f"{room} and (count({RUNNING}{{{pods}}}) > 0)"


def _remaining(used: str, limit: float) -> str:
    """A comparison drops what is no number."""
    return f"clamp(1 - ({used} >= 0) / {limit:g}, 0, 1)"
