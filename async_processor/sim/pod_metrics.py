"""A pod's `/metrics`: vLLM's own names, types, labels and buckets."""

from __future__ import annotations

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

_LABELS = ("engine", "model_name")
_FIRST_TOKEN = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_BETWEEN_TOKENS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0),
)
_REQUEST = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod is doing now; `kv_usage` is a share in [0, 1]."""

    running: int
    waiting: int = 0
    kv_usage: float = 0.0


class PodMetrics:
    """Every series of one pod. Whoever runs the requests reports; durations are in seconds."""

    def __init__(self, model_name: str) -> None:
        self._registry = CollectorRegistry()
        self._model_name = model_name
        self._running = self._gauge(
            "num_requests_running", "Number of requests in model execution batches."
        )
        self._waiting = self._gauge(
            "num_requests_waiting", "Number of requests waiting to be processed."
        )
        by_reason = Gauge(
            "vllm:num_requests_waiting_by_reason",
            "Number of waiting requests by reason.",
            (*_LABELS, "reason"),
            registry=self._registry,
        )
        self._waiting_for_capacity = by_reason.labels("0", model_name, "capacity")
        by_reason.labels("0", model_name, "deferred").set(0)
        self._kv_usage = self._gauge(
            "kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage."
        )
        self._preemptions = self._counter(
            "num_preemptions", "Cumulative number of preemptions from the engine."
        )
        self._prompt_tokens = self._counter("prompt_tokens", "Number of prefill tokens processed.")
        self._generated_tokens = self._counter(
            "generation_tokens", "Number of generation tokens processed."
        )
        self._successes = Counter(
            "vllm:request_success",
            "Count of successfully processed requests.",
            (*_LABELS, "finished_reason"),
            registry=self._registry,
        ).labels("0", model_name, "length")
        self._rejections = Counter(
            "vllm:admission_rejections",
            "Requests rejected at admission, by reason.",
            (*_LABELS, "reason"),
            registry=self._registry,
        ).labels("0", model_name, "max_num_queued_reqs")
        self._first_token = self._histogram(
            "time_to_first_token_seconds", "Time to first token in seconds.", _FIRST_TOKEN
        )
        self._between_tokens = self._histogram(
            "inter_token_latency_seconds", "Inter-token latency in seconds.", _BETWEEN_TOKENS
        )
        self._queue_time = self._histogram(
            "request_queue_time_seconds", "Time spent in WAITING phase for request.", _REQUEST
        )
        self._request = self._histogram(
            "e2e_request_latency_seconds", "End to end request latency in seconds.", _REQUEST
        )

    def preempted(self, count: int) -> None:
        self._preemptions.inc(count)

    def rejected(self) -> None:
        self._rejections.inc()

    def first_token(self, *, queued: float, since_arrival: float) -> None:
        self._queue_time.observe(queued)
        self._first_token.observe(since_arrival)

    def next_token(self, since_last: float) -> None:
        self._between_tokens.observe(since_last)

    def finished(self, *, prompt_tokens: int, output_tokens: int, since_arrival: float) -> None:
        self._prompt_tokens.inc(prompt_tokens)
        self._generated_tokens.inc(output_tokens)
        self._successes.inc()
        self._request.observe(since_arrival)

    def render(self, load: Load) -> bytes:
        """The page in Prometheus' text format."""
        self._running.set(load.running)
        self._waiting.set(load.waiting)
        self._waiting_for_capacity.set(load.waiting)
        self._kv_usage.set(load.kv_usage)
        return generate_latest(self._registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        gauge = Gauge(f"vllm:{name}", text, _LABELS, registry=self._registry)
        return gauge.labels("0", self._model_name)

    def _counter(self, name: str, text: str) -> Counter:
        counter = Counter(f"vllm:{name}", text, _LABELS, registry=self._registry)
        return counter.labels("0", self._model_name)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        histogram = Histogram(
            f"vllm:{name}", text, _LABELS, buckets=buckets, registry=self._registry
        )
        return histogram.labels("0", self._model_name)
