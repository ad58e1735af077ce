"""Every series in one place: names, labels and bounds as the contract has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from async_processor.telemetry.histograms import Family, Histogram, Snapshot
from async_processor.telemetry.tallies import Kind, Tallies, Tally

PREFIX: Final = "llm_d_async_async_"
QUEUE: Final = ("queue_id", "queue_name", "pool_name")
POOL: Final = ("pool_name",)

Owner = tuple[str, str, str]
"""Whose a series is: a queue's labels; of a pool's, the first two are empty."""

QuotaOwner = tuple[str, str]
"""What a gauge of a quota is of: the quota's name and the tenant's."""

GATE_REASONS: Final = ("gate_closed", "quota_exhausted", "dropped", "error")
DEAD_LETTER_REASONS: Final = ("invalid", "poisonous", "no_result_queue")
"""Not to be processed; delivered too often without an outcome; a result that no list took."""
FAILURE_CATEGORIES: Final = (
    "AUTH_ERROR",
    "CLIENT_ERROR",
    "SERVER_ERROR",
    "NETWORK_ERROR",
    "RATE_LIMIT",
    "INVALID_REQUEST",
    "MAX_DELIVERIES",
    "PAYLOAD_UNAVAILABLE",
)
"""Those of `settlement.decision.Category`; each starts at 0, so that a rate sees the first."""
RETRY_CATEGORIES: Final = ("CLIENT_ERROR", "SERVER_ERROR", "NETWORK_ERROR", "RATE_LIMIT")
"""Those of them that pass: the call is made again."""
SHED_REASONS: Final = (
    "rejected-saturated",
    "rejected-no-endpoints",
    "rejected-ttl-expired",
    "rejected-context-cancelled",
    "rejected-shutting-down",
    "rejected-internal",
    "evicted",
    "evicted-queue-pressure",
    "evicted-priority",
    "other",
    "unknown",
)
"""What llm-d's router says (`x-llm-d-request-dropped-reason`; `pkg/common/error` of llm-d-router);
another word; none."""

_SECOND: Final = 1000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE

DEADLINE_BOUNDS_MS: Final[tuple[int, ...]] = (
    0,
    *(n * _SECOND for n in (1, 5, 15, 30)),
    *(n * _MINUTE for n in (1, 2, 5, 10, 30)),
    *(n * _HOUR for n in (1, 2, 6, 24)),
)
"""Milliseconds left to the deadline; what a transport's `backlog` is asked to count by."""

MESSAGE_LATENCY_BOUNDS_MS: Final = (
    100, 1000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
)  # fmt: skip
INFERENCE_LATENCY_BOUNDS_MS: Final = (
    10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 120_000,
)  # fmt: skip
QUEUE_RESIDENCE_BOUNDS_MS: Final = (
    500, 1000, 2000, 5000, 10_000, 30_000, 60_000, 120_000, 300_000, 600_000,
    1_800_000, 3_600_000, 7_200_000, 21_600_000, 43_200_000, 86_400_000,
)  # fmt: skip


OTHER_TENANTS: Final = "*"
"""The label of all tenants together that the configuration does not name."""


def owned_by_pool(pool_name: str) -> Owner:
    """The owner of a pool's series."""
    return "", "", pool_name


def _owner(labels: Sequence[str]) -> Owner:
    """By a gauge's labels: a queue's and maybe more, or a pool's name alone."""
    if len(labels) < len(QUEUE):
        return owned_by_pool(*labels)
    queue_id, queue_name, pool_name = labels[: len(QUEUE)]
    return queue_id, queue_name, pool_name


class Series:
    """The declared series of one registry; a labelled member appears when it is asked for."""

    def __init__(
        self, registry: CollectorRegistry, trace_id: Callable[[], str] | None = None
    ) -> None:
        self._registry = registry
        self._trace_id = trace_id
        self._declare_requests()
        self._declare_times()
        self._declare_queue_state()
        self._declare_gates()
        self._declare_tenants()
        self._declare_process()

    def _declare_requests(self) -> None:
        counter = self._counter
        self.request = counter("request", "Requests, once each")
        self.dispatched = counter("dispatched_requests", "Calls sent, retries included")
        self.retries = counter("request_retries", "Retries scheduled")
        self.successful = counter("successful_requests", "Requests answered with 2xx")
        self.failed = counter("failed_requests", "Requests that ended in a final error")
        self.shedded = counter("shedded_requests", "Answers with status 429")
        self.exceeded_deadline = counter(
            "exceeded_deadline_requests", "Requests ended by their deadline"
        )
        self.gate_wait_requeues = counter(
            "gate_wait_requeues", "Requests given back after waiting too long at a gate"
        )
        self.tokens = counter("tokens", "Tokens by the answers' usage", (*QUEUE, "direction"))
        self.failure_category = counter(
            "failure_category",
            "Requests that ended in a final error, by kind",
            (*QUEUE, "category"),
        )
        self.retry_category = counter(
            "retry_category", "Retries scheduled, by the kind of failure", (*QUEUE, "category")
        )
        self.shed_reason = counter(
            "shed_reason", "Answers with status 429, by the router's reason", (*QUEUE, "reason")
        )
        self.dead_letters = counter(
            "dead_letters", "Messages moved to the dead-letter queue", (*QUEUE, "reason")
        )
        self.leases_reclaimed = counter("leases_reclaimed", "Expired leases taken back")
        self.leases_lost = counter("leases_lost", "Leases lost while this process worked on them")
        self.unconfirmed = counter(
            "unconfirmed_settlements", "Outcomes that replicas did not confirm in time"
        )

    def _declare_times(self) -> None:
        self.message_latency = self._histogram(
            "message_latency_time_millis",
            "From publishing to claiming, in ms",
            MESSAGE_LATENCY_BOUNDS_MS,
        )
        self.inference_latency = self._histogram(
            "inference_latency_time_millis",
            "Duration of each attempt, failed ones too, in ms",
            INFERENCE_LATENCY_BOUNDS_MS,
        )
        self.queue_residence = self._histogram(
            "queue_residence_time_millis",
            "From claiming to the worker, in ms",
            QUEUE_RESIDENCE_BOUNDS_MS,
        )
        self.deadline_proximity = Family(
            f"{PREFIX}deadline_proximity_millis",
            "Time left to the deadlines of what is queued now, in ms: a snapshot, not to be rated; "
            "the sum is estimated from the bounds",
            QUEUE,
            bounds=DEADLINE_BOUNDS_MS,
            member=Snapshot,
            registry=self._registry,
        )

    def _declare_queue_state(self) -> None:
        gauge = self._gauge
        self.queue_depth = gauge("queue_depth", "Requests claimed that no worker has taken yet")
        self.inflight = gauge("inflight_requests", "Calls running")
        self.gate_waiting = gauge("gate_waiting_requests", "Requests parked at a pool's gate")
        self.broker_backlog = gauge("broker_backlog", "Requests waiting in the broker")
        self.backlog_available = gauge(
            "broker_backlog_source_available", "Whether the backlog could be read"
        )
        self.oldest_age = gauge(
            "broker_oldest_message_age_seconds",
            "How long the oldest request waits in the broker, or the one that is next in its order",
        )
        self.dispatch_budget = gauge("dispatch_budget", "Share of the pool that may be used")

    def _declare_gates(self) -> None:
        gauge = self._gauge
        self.gate_decisions = self._counter(
            "gate_decisions", "Times a gate held something back", (*QUEUE, "reason")
        )
        gate = (*QUEUE, "inference_pool")
        self.gate_value = gauge("gate_metric_value", "What a gate reads", gate)
        self.gate_threshold = gauge("gate_metric_threshold", "Where a gate closes", gate)
        self.gate_available = gauge(
            "gate_metric_source_available", "Whether a gate's source can be read", gate
        )
        self.worker_limit = gauge("pool_worker_limit", "Workers of a pool", POOL)
        self.drain_rps = gauge("drain_limit_rps", "Leased admission rate", POOL)
        self.drain_valid = gauge("drain_limit_lease_valid", "Whether the rate's lease holds", POOL)
        self.drain_valid_until = gauge(
            "drain_limit_valid_until_seconds", "Unix time of the end of the rate's lease", POOL
        )

    def _declare_tenants(self) -> None:
        quota = ("quota", "tenant")
        self.quota_in_use = self._gauge(
            "quota_in_use", "What a tenant uses of its quota, by all replicas together", quota
        )
        self.quota_limit = self._gauge("quota_limit", "How large a tenant's quota is", quota)
        self.tenant_started = self._counter(
            "tenant_started_requests",
            "Requests dispatched for the first time, by the tenants that the configuration names",
            (*POOL, "attribute", "tenant"),
        )

    def _declare_process(self) -> None:
        self.config_reloads = self._counter(
            "queue_config_reloads", "Reloads of the queue configuration", ("result",)
        )
        self.config_last_success = self._gauge(
            "queue_config_last_success_timestamp_seconds",
            "Unix time of the last configuration taken over",
            (),
        )
        self.dead_letter_backlog = self._gauge(
            "dead_letter_backlog", "Dead letters that lie in the broker", ()
        )
        self.dead_letters_dropped = self._counter(
            "dead_letters_dropped", "Dead letters dropped because there were too many", ()
        )
        self.settle_pending = self._gauge(
            "settle_pending", "Outcomes kept until the broker takes them", ()
        )

    def keep_gauges(self, owners: Set[Owner]) -> None:
        """Show only the gauges of these, and what of others still runs or waits here."""

        def wanted(labels: Sequence[str], _: object) -> bool:
            return _owner(labels) in owners

        def wanted_or_counting(labels: Sequence[str], held: Tally) -> bool:
            return wanted(labels, held) or held.value > 0

        for gauges in (self.queue_depth, self.inflight, self.gate_waiting):
            gauges.keep(wanted_or_counting)
        self.deadline_proximity.keep(wanted)
        for gauges in self._readings:
            gauges.keep(wanted)

    @property
    def _readings(self) -> Sequence[Tallies]:
        """The labelled gauges that show how something stands, and count nothing."""
        return (
            self.broker_backlog,
            self.backlog_available,
            self.oldest_age,
            self.dispatch_budget,
            self.gate_value,
            self.gate_threshold,
            self.gate_available,
            self.worker_limit,
            self.drain_rps,
            self.drain_valid,
            self.drain_valid_until,
        )

    def _counter(self, name: str, documentation: str, labels: Sequence[str] = QUEUE) -> Tallies:
        """`_total` is appended to the name where it is written out."""
        return self._tallies(CounterMetricFamily, name, documentation, labels)

    def _gauge(self, name: str, documentation: str, labels: Sequence[str] = QUEUE) -> Tallies:
        return self._tallies(GaugeMetricFamily, name, documentation, labels)

    def _tallies(self, kind: Kind, name: str, documentation: str, labels: Sequence[str]) -> Tallies:
        return Tallies(kind, PREFIX + name, documentation, labels, registry=self._registry)

    def _histogram(self, name: str, documentation: str, bounds: Sequence[int]) -> Family[Histogram]:
        return Family(
            PREFIX + name,
            documentation,
            QUEUE,
            bounds=bounds,
            member=partial(Histogram, trace_id=self._trace_id),
            registry=self._registry,
        )
