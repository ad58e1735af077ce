"""What `vllm-pool` reads: the pods themselves, or what a Prometheus has scraped of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import httpx

from async_processor.admission.sensor_gate import BudgetRule
from async_processor.admission.settings import VllmPoolGate
from async_processor.sensors.base import SHOWS_WITHIN
from async_processor.sensors.pool_query import LABEL, Figure, PoolQuerySource
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


def scraped_source(
    settings: VllmPoolGate, prometheus: str, client: httpx.AsyncClient
) -> PoolQuerySource:
    """What a Prometheus, by its base URL, has scraped of the pods."""
    lag = None if settings.max_running_per_pod is None else SHOWS_WITHIN
    return PoolQuerySource(
        name=f"vLLM pods {{{settings.selector}}} in Prometheus",
        url=prometheus,
        query=query(settings),
        lag=lag,
        client=client,
    )


def page(url: str) -> str:
    """The metrics page of a server."""
    base = url.rstrip("/")
    return base if base.endswith("/metrics") else f"{base}/metrics"


def rule(settings: VllmPoolGate) -> BudgetRule:
    """The room is the budget: of the places where there are such, else of the workers."""
    counted = settings.max_running_per_pod is not None
    return BudgetRule(fallback=settings.fallback, counted=counted, measured=not counted)


def query(settings: VllmPoolGate) -> str:
    """The room, of how many places and as of when (if they are limited), and what fills it."""
    pods, places = settings.selector, settings.max_running_per_pod
    figures: dict[str, str] = {
        Figure.ROOM: room_query(settings),
        Figure.KV_CACHE: f"max({_caches(pods)})",
        Figure.WAITING: f"max({_requests(WAITING, pods)})",
        Figure.RUNNING: f"max({_requests(RUNNING, pods)})",
    }
    if places is not None:
        figures[Figure.CAPACITY] = f"{places:g} * count({_known(pods)})"
        figures[Figure.SAMPLED_AT] = f"min(timestamp({RUNNING}{{{pods}}}))"
    return _labelled(LABEL, figures)


def room_query(settings: VllmPoolGate) -> str:
    """The same room as the pods' pages give: the mean of the pods' smallest remaining shares.

    A pod without a usable value has no share left, and with no pod at all there is no answer.
    """
    pods, waiting = settings.selector, settings.max_waiting_per_pod
    queued = _requests(WAITING, pods)
    shares = {
        "kv_cache": _remaining(_caches(pods), settings.max_kv_cache),
        "waiting": _remaining(queued, waiting) if waiting else f"({queued} == bool 0)",
    }
    if settings.max_running_per_pod is not None:
        shares["running"] = _remaining(_requests(RUNNING, pods), settings.max_running_per_pod)
    full = f"0 * {_known(pods)}"
    by_limit = _labelled("limit", {limit: f"{share} or {full}" for limit, share in shares.items()})
    room = f"avg(min by (instance) ({by_limit}))"
    if not waiting:
        room += f" * (sum({WAITING}{{{pods}}}) == bool 0)"
    return f"{room} and (count({RUNNING}{{{pods}}}) > 0)"


def _caches(pods: str) -> str:
    """Each pod's fullest KV cache."""
    return "(" + " or ".join(f"max by (instance) ({name}{{{pods}}})" for name in KV_CACHE) + ")"


def _requests(metric: str, pods: str) -> str:
    """Each pod's requests."""
    return f"sum by (instance) ({metric}{{{pods}}})"


def _known(pods: str) -> str:
    """A number for every pod there is, or was until lately."""
    return f"count by (instance) (last_over_time({RUNNING}{{{pods}}}[{REMEMBERED}]))"


def _labelled(label: str, expressions: Mapping[str, str]) -> str:
    """All of them as one vector, told apart by a label."""
    return " or ".join(
        f'label_replace({expression}, "{label}", "{value}", "", "")'
        for value, expression in expressions.items()
    )


def _remaining(used: str, limit: float) -> str:
    """A comparison drops what is no number."""
    return f"clamp(1 - ({used} >= 0) / {limit:g}, 0, 1)"
