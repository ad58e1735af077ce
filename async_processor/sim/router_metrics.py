"""The router's `/metrics`: the names and labels of llm-d's endpoint picker, new and old.

Saturation and the flow-control queue carry the pool's name as `inference_pool`, the others as
`name`; the newer saturation series has one sample for each `stage`, and one for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.exposition import generate_latest


class PoolState(msgspec.Struct, frozen=True, kw_only=True):
    """What the router knows of its pool; `waiting` is by pod name, of ready pods."""

    saturation: float
    queue_size: int
    waiting: dict[str, int]


class RouterMetrics:
    """Every series of the router."""

    def __init__(self, pool_name: str, model_name: str) -> None:
        self._pool_name = pool_name
        self._flow = ("default-flow", "0", pool_name, model_name, model_name)
        self._registry = CollectorRegistry()
        saturation = "Current saturation level of the inference pool."
        self._saturation = self._gauge(
            "llm_d_epp_flow_control_pool_saturation", saturation, ("inference_pool", "stage")
        )
        self._old_saturation = self._gauge(
            "inference_extension_flow_control_pool_saturation", saturation, ("inference_pool",)
        )
        self._queue_sizes = tuple(
            self._gauge(
                f"{prefix}_flow_control_queue_size",
                "Current number of requests actively held in the Flow Control queue.",
                ("fairness_id", "priority", "inference_pool", "model_name", "target_model_name"),
            )
            for prefix in ("llm_d_epp", "inference_extension")
        )
        waiting = "The total number of requests pending in the model server queue."
        self._waiting = (
            self._gauge(
                "llm_d_epp_per_endpoint_queue_size", waiting, ("name", "model_server_endpoint")
            ),
            self._gauge("inference_pool_per_pod_queue_size", waiting, ("name", "model_server_pod")),
        )
        self._ready = tuple(
            self._gauge(name, "The number of ready pods in the inference server pool.", ("name",))
            for name in ("llm_d_epp_ready_endpoints", "inference_pool_ready_pods")
        )

    def render(self, state: PoolState) -> bytes:
        """The page in Prometheus' text format."""
        for stage in ("decode", "effective"):
            self._saturation.labels(self._pool_name, stage).set(state.saturation)
        self._old_saturation.labels(self._pool_name).set(state.saturation)
        for gauge in self._queue_sizes:
            gauge.labels(*self._flow).set(state.queue_size)
        for gauge in self._ready:
            gauge.labels(self._pool_name).set(len(state.waiting))
        for gauge in self._waiting:
            self._set_waiting(gauge, state.waiting)
        return generate_latest(self._registry)

    def _set_waiting(self, gauge: Gauge, waiting: dict[str, int]) -> None:
        gauge.clear()
        for pod_name, count in waiting.items():
            gauge.labels(self._pool_name, pod_name).set(count)

    def _gauge(self, name: str, text: str, labels: Sequence[str]) -> Gauge:
        return Gauge(name, text, labels, registry=self._registry)
