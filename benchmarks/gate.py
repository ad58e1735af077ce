"""How near a gate keeps a pool to its threshold, beside static limits under the same load.

The pool is simulated: six pods whose KV caches are what is scarce, and a router that sheds (429)
at saturation 1; a pod refuses (503) beyond so many requests in flight. A backlog of requests of
various sizes appears at once; saturation is read from the router's metrics every 100 ms as long as
requests wait in the broker, which is when the gate decides how full the pool is.

The gate reads a real Prometheus that scrapes the router every second, where there is one, else
the router's page itself. The static limit is what the mean request needs of the cache, computed by
somebody who knows all sizes; `none` sends as much as there are workers.

A reading lets budget x workers start, so a pool that ends many requests between two readings
settles where the budget replaces them: ends / workers below the threshold. Hence several times as
many workers as the pool can hold, where a gate that lets all start at once does most harm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Final

from async_processor.sim.kv_cache import KvCache
from async_processor.sim.saturation import KV_CACHE_THRESHOLD
from async_processor.testing.prometheus import prometheus_binary
from benchmarks.gated_run import (
    ENGINE,
    OUTPUT_TOKENS,
    PODS,
    PROMPT_TOKENS,
    SATURATION,
    Run,
    measured,
)
from benchmarks.report import Cell, Report
from benchmarks.simulated_pool import NAME

THRESHOLD: Final = 0.8
_NEAR: Final = 0.05
_AIMS: Final = (
    "aims, with the gate: mean saturation within 0.05 of 0.8, most below 1, nothing wasted."
    " Wasted calls are those that the router shed (429) or a pod refused (503)."
)


async def gate(
    *, requests: int = 5000, workers: int = 3200, interactive: bool = False, via: str = ""
) -> Report:
    """Compare the gate with a static limit and with none."""
    via = via or ("prometheus" if prometheus_binary() else "scrape")
    rows = []
    for what, settings in ways(via).items():
        run = await measured(settings, requests, workers, interactive=interactive)
        rows.append(_row(what, run))
    beside = "beside interactive chats in bursts" if interactive else "without other traffic"
    title = f"Gate at saturation {THRESHOLD}: {requests:,} requests {beside}, {workers} workers"
    return Report(name="gate", title=title, rows=rows, aims=_AIMS)


def ways(via: str) -> Mapping[str, str]:
    """The gate's settings by what is shown for them."""
    static = static_limit()
    return {
        f"gate, {_READ[via]}": _GATES[via],
        f"static limit of {static}": f"{{type: local-max-concurrency, limit: {static}}}",
        "none": "{type: constant}",
    }


_READ: Final = {
    "prometheus": "Prometheus every second",
    "scrape": "the router's page every second",
}
_GATES: Final = {
    "prometheus": f"{{type: prometheus-saturation, pool: {NAME}, threshold: {THRESHOLD},"
    " fallback: 1.0}",
    "scrape": f"{{type: endpoint-scrape, url: <metrics>, metric: {SATURATION},"
    f" labels: {{stage: effective}}, baseline: {1 - THRESHOLD:.2f}}}",
}


def static_limit() -> int:
    """So many requests of mean size, halfway through, fill the caches to the threshold."""
    tokens = fmean(PROMPT_TOKENS) + fmean(OUTPUT_TOKENS) / 2 + ENGINE.block_size / 2
    room = KvCache(blocks=ENGINE.num_gpu_blocks, block_size=ENGINE.block_size).capacity
    return int(PODS * room * KV_CACHE_THRESHOLD * THRESHOLD / tokens)


def once_filled(saturations: Sequence[float]) -> Sequence[float]:
    """From the first that is near the threshold on; all, if none is."""
    near = (n for n, each in enumerate(saturations) if each >= THRESHOLD - _NEAR)
    return saturations[next(near, 0) :]


def _row(what: str, run: Run) -> Mapping[str, Cell]:
    row: dict[str, Cell] = {
        "what": what,
        "mean saturation": fmean(run.saturations),
        "once filled": fmean(once_filled(run.saturations)),
        "most": max(run.saturations),
        "seconds": run.seconds,
        "shed (429)": run.shed,
        "refused (503)": run.refused,
    }
    if run.interactive:
        row["chat TTFT p50 s"] = run.interactive.first_token_p50
        row["p95 s"] = run.interactive.first_token_p95
        row["chats"] = run.interactive.requests
        row["failed"] = run.interactive.failures
    return row
