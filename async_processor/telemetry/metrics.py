"""What the parts of the daemon tell about themselves, named by what happened.

Each queue and each pool gets an object that holds its labelled series, so that counting on the
way of a request looks nothing up. All series of a queue stand at 0 from its first mention.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from typing import Protocol

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.openmetrics import exposition as openmetrics

from async_processor.telemetry.pages import Page, page_of
from async_processor.telemetry.series import (
    DEAD_LETTER_REASONS,
    FAILURE_CATEGORIES,
    GATE_REASONS,
    OTHER_TENANTS,
    RETRY_CATEGORIES,
    SHED_REASONS,
    Owner,
    QuotaOwner,
    Series,
    owned_by_pool,
)
from async_processor.telemetry.tallies import Tally
from async_processor.wire.tenants import canonical


class BacklogReading(Protocol):
    """What lies in the broker; `deadlines` counts by `DEADLINE_BOUNDS_MS`, or is empty.

    `dead_letters` are those of all queues.
    """

    @property
    def waiting(self) -> int: ...
    @property
    def parked(self) -> int: ...
    @property
    def dead_letters(self) -> int: ...
    @property
    def oldest_age(self) -> float | None: ...
    @property
    def deadlines(self) -> Sequence[int]: ...


class GateReading(Protocol):
    """What a gate tells; None where it has no such thing."""

    @property
    def available(self) -> bool: ...
    @property
    def value(self) -> float | None: ...
    @property
    def threshold(self) -> float | None: ...
    @property
    def pool(self) -> str: ...


class _GateMetrics:
    """The series of one gate; a pool's gate has an empty queue id and name."""

    def __init__(self, series: Series, labels: Owner) -> None:
        self._series = series
        self.owner = labels
        self._decisions = {
            reason: series.gate_decisions.labels(*labels, reason) for reason in GATE_REASONS
        }
        self._has_source = False

    def gate_decision(self, reason: str) -> None:
        """The gate held something back, for one of `GATE_REASONS`."""
        self._decisions[reason].inc()

    def gate_reading(self, state: GateReading) -> None:
        """Show what the gate reads; a gate without a source shows nothing."""
        read = (state.value, state.threshold) != (None, None)
        self._has_source = self._has_source or read or not state.available
        if not self._has_source:
            return
        labels = (*self.owner, state.pool)
        self._series.gate_available.labels(*labels).set(state.available)
        if state.threshold is not None:
            self._series.gate_threshold.labels(*labels).set(state.threshold)
        if state.value is not None and state.available:
            self._series.gate_value.labels(*labels).set(state.value)


class QueueMetrics(_GateMetrics):
    """The series of one queue. Durations are milliseconds."""

    def __init__(self, series: Series, labels: Owner) -> None:
        super().__init__(series, labels)
        self._request = series.request.labels(*labels)
        self._dispatched = series.dispatched.labels(*labels)
        self._retries = series.retries.labels(*labels)
        self._successful = series.successful.labels(*labels)
        self._failed = series.failed.labels(*labels)
        self._shedded = series.shedded.labels(*labels)
        self._exceeded_deadline = series.exceeded_deadline.labels(*labels)
        self._gate_wait_requeues = series.gate_wait_requeues.labels(*labels)
        self._input_tokens = series.tokens.labels(*labels, "input")
        self._output_tokens = series.tokens.labels(*labels, "output")
        self._leases_reclaimed = series.leases_reclaimed.labels(*labels)
        self._unconfirmed = series.unconfirmed.labels(*labels)
        self._leases_lost = series.leases_lost.labels(*labels)
        self._broker_backlog = series.broker_backlog.labels(*labels)
        self._dead_letter_backlog = series.dead_letter_backlog.labels()  # of all queues together
        self._backlog_available = series.backlog_available.labels(*labels)
        self._dispatch_budget = series.dispatch_budget.labels(*labels)
        self._deadline_proximity = series.deadline_proximity.labels(*labels)
        self._failures = {
            category: series.failure_category.labels(*labels, category)
            for category in FAILURE_CATEGORIES
        }
        self._retried = {
            category: series.retry_category.labels(*labels, category)
            for category in RETRY_CATEGORIES
        }
        self._shed = {reason: series.shed_reason.labels(*labels, reason) for reason in SHED_REASONS}
        self._dead_letters = {
            reason: series.dead_letters.labels(*labels, reason) for reason in DEAD_LETTER_REASONS
        }
        self.queue_depth = series.queue_depth.labels(*labels)
        self.inflight = series.inflight.labels(*labels)
        self.gate_waiting = series.gate_waiting.labels(*labels)
        self.queue_residence = series.queue_residence.labels(*labels).observe
        self.inference_latency = series.inference_latency.labels(*labels).observe
        self.message_latency = series.message_latency.labels(*labels).observe

    def request_counted(self) -> None:
        """A request is dispatched for the first time, or ends before."""
        self._request.inc()

    def dispatched(self) -> None:
        """A call is sent."""
        self._dispatched.inc()

    def retry_scheduled(self, category: str) -> None:
        """A call failed in one of the `RETRY_CATEGORIES`, and is made again."""
        self._retries.inc()
        self._retried[category].inc()

    def succeeded(self) -> None:
        """A request was answered with 2xx."""
        self._successful.inc()

    def failed(self, category: str) -> None:
        """A request ended in a final error of one of `FAILURE_CATEGORIES`."""
        self._failed.inc()
        self._failures[category].inc()

    def shed(self, reason: str) -> None:
        """An answer with status 429 came, with the router's reason or "" without one."""
        self._shedded.inc()
        self._shed.get(reason or "unknown", self._shed["other"]).inc()

    def deadline_exceeded(self) -> None:
        self._exceeded_deadline.inc()

    def gate_wait_requeued(self) -> None:
        self._gate_wait_requeues.inc()

    def tokens(self, input_tokens: int, output_tokens: int) -> None:
        """What an answer's usage says; servers' nonsense below 0 is left out."""
        self._input_tokens.inc(max(0, input_tokens))
        self._output_tokens.inc(max(0, output_tokens))

    def dead_letter(self, reason: str) -> None:
        """A message went to the dead-letter queue, for one of `DEAD_LETTER_REASONS`."""
        self._dead_letters[reason].inc()

    def unconfirmed(self) -> None:
        """An outcome was written, and replicas did not confirm it in time."""
        self._unconfirmed.inc()

    def leases_reclaimed(self, count: int) -> None:
        self._leases_reclaimed.inc(count)

    def lease_lost(self) -> None:
        self._leases_lost.inc()

    def backlog(self, reading: BacklogReading | None) -> None:
        """Show what lies in the broker; None, if unreadable, leaves the last figures standing."""
        self._backlog_available.set(reading is not None)
        self._age(None if reading is None else reading.oldest_age)
        if reading is None:
            return
        self._broker_backlog.set(reading.waiting + reading.parked)
        self._dead_letter_backlog.set(reading.dead_letters)
        if reading.deadlines:
            self._deadline_proximity.replace(reading.deadlines)

    def _age(self, seconds: float | None) -> None:
        """One that nobody knows is not shown: it would stand for ever."""
        if seconds is None:
            self._series.oldest_age.remove(*self.owner)
        else:
            self._series.oldest_age.labels(*self.owner).set(seconds)

    def dispatch_budget(self, value: float) -> None:
        """The smaller of the queue's gate's budget and its pool's, in [0, 1]."""
        self._dispatch_budget.set(value)


class PoolMetrics(_GateMetrics):
    """The series of one pool."""

    def __init__(self, series: Series, pool_name: str) -> None:
        super().__init__(series, owned_by_pool(pool_name))
        self._pool_name = pool_name

    def worker_limit(self, workers: int) -> None:
        self._series.worker_limit.labels(self._pool_name).set(workers)


class TenantMetrics:
    """Whose requests a pool starts, by each metadata attribute that tenants are named by.

    `names` are by attribute what a request may say there, and the tenant that this is. Whom an
    attribute names not is one of its others, so that its counts add up to all requests.
    """

    def __init__(
        self, series: Series, pool_name: str, names: Mapping[str, Mapping[str, str]]
    ) -> None:
        self._by_attribute: list[tuple[str, Mapping[str, Tally], Tally]] = []
        for attribute, tenants in names.items():
            started = partial(series.tenant_started.labels, pool_name, attribute)
            named = {said: started(tenant) for said, tenant in tenants.items()}
            self._by_attribute.append((attribute, named, started(OTHER_TENANTS)))

    def started(self, metadata: Mapping[str, str]) -> None:
        """A request with these attributes is dispatched for the first time."""
        for attribute, named, others in self._by_attribute:
            named.get(canonical(metadata.get(attribute, "")), others).inc()


class DrainLimitMetrics:
    """The series of a pool whose gate leases its rate from a planner; 0 from the start."""

    def __init__(self, series: Series, pool_name: str) -> None:
        self._rps = series.drain_rps.labels(pool_name)
        self._valid = series.drain_valid.labels(pool_name)
        self._valid_until = series.drain_valid_until.labels(pool_name)

    def leased(self, *, rps: float, valid: bool, valid_until: float) -> None:
        """The rate in requests per second, and until when it holds (Unix seconds)."""
        self._rps.set(rps)
        self._valid.set(valid)
        self._valid_until.set(valid_until)


class Metrics:
    """All series of this process, on a registry of its own.

    With `trace_id`, which tells the current trace or "", histograms have exemplars.
    """

    def __init__(self, trace_id: Callable[[], str] | None = None) -> None:
        self.traced = trace_id is not None
        self._registry = CollectorRegistry()
        self._series = Series(self._registry, trace_id)
        self._reloads = {
            result: self._series.config_reloads.labels(result) for result in ("success", "error")
        }
        self.settle_pending = self._series.settle_pending.labels()
        self._letters_dropped = self._series.dead_letters_dropped.labels()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._registry)

    def queue(self, queue_id: str, queue_name: str, pool_name: str) -> QueueMetrics:
        """The series of a queue; asked for twice, they go on counting."""
        return QueueMetrics(self._series, (queue_id, queue_name, pool_name))

    def pool(self, pool_name: str) -> PoolMetrics:
        return PoolMetrics(self._series, pool_name)

    def tenants(self, pool_name: str, names: Mapping[str, Mapping[str, str]]) -> TenantMetrics:
        """The series of the tenants of a pool; see there."""
        return TenantMetrics(self._series, pool_name, names)

    def quotas(
        self, *, in_use: Mapping[QuotaOwner, float], limits: Mapping[QuotaOwner, float]
    ) -> None:
        """Show this of tenants and their quotas, and nothing of others."""
        self._series.quota_in_use.show(in_use.items())
        self._series.quota_limit.show(limits.items())

    def drain_limit(self, pool_name: str) -> DrainLimitMetrics:
        return DrainLimitMetrics(self._series, pool_name)

    def keep_gauges(self, owners: Set[Owner]) -> None:
        """Show no gauges of queues and pools that are gone; their counters stay.

        What a queue that is gone still has here is to be seen until it has ended.
        """
        self._series.keep_gauges(owners)

    def dead_letters_dropped(self, count: int) -> None:
        """The dead-letter queue was over its limit, and lost its oldest letters."""
        self._letters_dropped.inc(count)

    def config_reloaded(self, at: float) -> None:
        """The queue configuration was taken over at a Unix time in seconds."""
        self._reloads["success"].inc()
        self._series.config_last_success.labels().set(at)

    def config_reload_failed(self) -> None:
        self._reloads["error"].inc()

    def page(self) -> Page:
        """Everything as data, to be made one with what other processes show."""
        return page_of(self._registry)

    def exposition(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self._registry)

    def openmetrics(self) -> bytes:
        """The same in OpenMetrics' text format, which has exemplars."""
        page: bytes = openmetrics.generate_latest(self._registry)  # type: ignore[no-untyped-call]
        return page
