"""How saturated a pool is, as llm-d's endpoint picker computes it.

Source: the README of the `utilization-detector` plugin, the default detector, in
llm-d/llm-d-inference-scheduler (pkg/epp/framework/plugins/flowcontrol/saturationdetector):
each endpoint's score is the larger of queue depth / threshold and KV use / threshold, by default
5 requests and 0.8; the pool's saturation is the plain average of the scores, and may exceed 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from async_processor.sim.pod_metrics import Load

QUEUE_DEPTH_THRESHOLD = 5
KV_CACHE_THRESHOLD = 0.8


def pool_saturation(loads: Sequence[Load]) -> float:
    """0 is idle, 1 saturated; a pool without a ready pod counts as saturated."""
    if not loads:
        return 1.0
    return sum(pod_saturation(load) for load in loads) / len(loads)


def pod_saturation(load: Load) -> float:
    """The scarcest of the pod's two resources decides."""
    return max(load.waiting / QUEUE_DEPTH_THRESHOLD, load.kv_usage / KV_CACHE_THRESHOLD)
