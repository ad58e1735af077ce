"""The metrics as a scrape sees them: exact names, labels and bounds, and what each call counts.

Reads the text exposition, since that is what dashboards and alerts depend on.
"""

from __future__ import annotations

import re

import msgspec
import pytest

from async_processor.admission.base import GateState, Reason
from async_processor.settlement.decision import Category
from async_processor.telemetry.metrics import Metrics, PoolMetrics, QueueMetrics
from async_processor.telemetry.series import (
    DEADLINE_BOUNDS_MS,
    FAILURE_CATEGORIES,
    GATE_REASONS,
    RETRY_CATEGORIES,
    SHED_REASONS,
)
from async_processor.transport.base import Backlog
from async_processor.wire.tenants import canonical

PREFIX = "llm_d_async_async_"
QUEUE = 'pool_name="p",queue_id="q",queue_name="n"'

COUNTERS = [
    "request_total",
    "dispatched_requests_total",
    "request_retries_total",
    "successful_requests_total",
    "failed_requests_total",
    "shedded_requests_total",
    "exceeded_deadline_requests_total",
    "gate_wait_requeues_total",
    "leases_reclaimed_total",
    "leases_lost_total",
    "unconfirmed_settlements_total",
]
GAUGES = [
    "queue_depth",
    "inflight_requests",
    "gate_waiting_requests",
    "broker_backlog",
    "broker_backlog_source_available",
    "dispatch_budget",
]
BOUNDS = {
    "message_latency_time_millis": "100 1000 5000 10000 20000 50000 100000 200000 500000 1e+06",
    "inference_latency_time_millis": "10 25 50 100 250 500 1000 2500 5000 10000 30000 60000 120000",
    "queue_residence_time_millis": "500 1000 2000 5000 10000 30000 60000 120000 300000 600000 "
    "1.8e+06 3.6e+06 7.2e+06 2.16e+07 4.32e+07 8.64e+07",
    "deadline_proximity_millis": "0 1000 5000 15000 30000 60000 120000 300000 600000 1.8e+06 "
    "3.6e+06 7.2e+06 2.16e+07 8.64e+07",
}


class Scrape:
    """The samples of an exposition, by name and sorted labels."""

    def __init__(self, metrics: Metrics) -> None:
        self.text = metrics.exposition().decode()
        self._samples = {}
        for line in self.text.splitlines():
            if line.startswith(PREFIX):
                name, labels, value = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line).groups()  # type: ignore[union-attr]
                key = ",".join(sorted(re.findall(r'\w+="[^"]*"', labels or "")))
                self._samples[name.removeprefix(PREFIX), key] = float(value)

    def __call__(self, name: str, labels: str = QUEUE) -> float | None:
        return self._samples.get((name, ",".join(sorted(labels.split(",") if labels else []))))

    def names(self) -> set[str]:
        return {name for name, _ in self._samples}

    def bounds(self, name: str) -> list[str]:
        return re.findall(rf'{PREFIX}{name}_bucket{{[^}}]*le="([^"]*)"', self.text)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def queue(metrics: Metrics) -> QueueMetrics:
    return metrics.queue("q", "n", "p")


@pytest.fixture
def pool(metrics: Metrics) -> PoolMetrics:
    return metrics.pool("p")


@pytest.mark.usefixtures("queue")
def test_everything_of_a_queue_stands_at_zero_from_the_start(metrics: Metrics) -> None:
    scrape = Scrape(metrics)
    for name in COUNTERS + GAUGES:
        assert scrape(name) == 0, name
    for direction in ("input", "output"):
        assert scrape("tokens_total", f'{QUEUE},direction="{direction}"') == 0
    for reason in ("gate_closed", "quota_exhausted", "dropped", "error"):
        assert scrape("gate_decisions_total", f'{QUEUE},reason="{reason}"') == 0
    for name in BOUNDS:
        assert scrape(f"{name}_count") == scrape(f"{name}_sum") == 0
    for result in ("success", "error"):
        assert scrape("queue_config_reloads_total", f'result="{result}"') == 0
    assert scrape("queue_config_last_success_timestamp_seconds", "") == 0
    for name in ("settle_pending", "dead_letter_backlog", "dead_letters_dropped_total"):
        assert scrape(name, "") == 0
    for reason in ("invalid", "poisonous", "no_result_queue"):
        assert scrape("dead_letters_total", f'{QUEUE},reason="{reason}"') == 0
    for category in FAILURE_CATEGORIES:
        assert scrape("failure_category_total", f'{QUEUE},category="{category}"') == 0
    for category in RETRY_CATEGORIES:
        assert scrape("retry_category_total", f'{QUEUE},category="{category}"') == 0
    for reason in SHED_REASONS:
        assert scrape("shed_reason_total", f'{QUEUE},reason="{reason}"') == 0


def test_every_category_of_a_failure_has_its_counter() -> None:
    assert set(FAILURE_CATEGORIES) == set(Category) - {Category.NONE}


@pytest.mark.usefixtures("queue")
def test_bounds_are_written_as_the_go_client_writes_them(metrics: Metrics) -> None:
    scrape = Scrape(metrics)
    for name, bounds in BOUNDS.items():
        assert scrape.bounds(name) == [*bounds.split(), "+Inf"], name


def test_there_are_no_created_series_and_no_others_than_the_known(
    metrics: Metrics, queue: QueueMetrics, pool: PoolMetrics
) -> None:
    queue.gate_reading(GateState(type="x", budget=1.0, value=1.0, threshold=0.5))
    pool.worker_limit(1)
    metrics.drain_limit("p")
    metrics.tenants("p", {"userid": {}})
    metrics.quotas(in_use={("x", "a"): 1}, limits={("x", "a"): 2})
    queue.backlog(Backlog(waiting=1, oldest_age=1.0))
    histograms = {f"{name}{part}" for name in BOUNDS for part in ("_bucket", "_sum", "_count")}
    assert Scrape(metrics).names() == histograms | set(COUNTERS) | set(GAUGES) | {
        "tokens_total",
        "gate_decisions_total",
        "gate_metric_value",
        "gate_metric_threshold",
        "gate_metric_source_available",
        "pool_worker_limit",
        "drain_limit_rps",
        "drain_limit_lease_valid",
        "drain_limit_valid_until_seconds",
        "queue_config_reloads_total",
        "queue_config_last_success_timestamp_seconds",
        "failure_category_total",
        "retry_category_total",
        "shed_reason_total",
        "tenant_started_requests_total",
        "quota_in_use",
        "quota_limit",
        "broker_oldest_message_age_seconds",
        "dead_letters_total",
        "dead_letters_dropped_total",
        "dead_letter_backlog",
        "settle_pending",
    }


def test_the_process_shows_itself(metrics: Metrics) -> None:
    text = Scrape(metrics).text
    assert "process_resident_memory_bytes " in text
    assert "python_info{" in text


@pytest.mark.parametrize(
    ("event", "counter"),
    [
        ("request_counted", "request_total"),
        ("dispatched", "dispatched_requests_total"),
        ("succeeded", "successful_requests_total"),
        ("deadline_exceeded", "exceeded_deadline_requests_total"),
        ("gate_wait_requeued", "gate_wait_requeues_total"),
        ("lease_lost", "leases_lost_total"),
        ("unconfirmed", "unconfirmed_settlements_total"),
    ],
)
def test_each_event_counts_in_its_counter_alone(
    metrics: Metrics, queue: QueueMetrics, event: str, counter: str
) -> None:
    getattr(queue, event)()
    scrape = Scrape(metrics)
    assert {name for name in COUNTERS if scrape(name)} == {counter}
    assert scrape(counter) == 1


def test_events_with_a_figure(metrics: Metrics, queue: QueueMetrics) -> None:
    queue.failed("AUTH_ERROR")
    queue.retry_scheduled("RATE_LIMIT")
    queue.dead_letter("invalid")
    queue.leases_reclaimed(3)
    queue.tokens(5, 7)
    queue.tokens(-1, -1)
    queue.dispatch_budget(0.25)
    scrape = Scrape(metrics)
    assert scrape("failed_requests_total") == 1
    assert scrape("failure_category_total", f'{QUEUE},category="AUTH_ERROR"') == 1
    assert scrape("request_retries_total") == 1
    assert scrape("retry_category_total", f'{QUEUE},category="RATE_LIMIT"') == 1
    assert scrape("dead_letters_total", f'{QUEUE},reason="invalid"') == 1
    assert scrape("leases_reclaimed_total") == 3
    assert scrape("tokens_total", f'{QUEUE},direction="input"') == 5
    assert scrape("tokens_total", f'{QUEUE},direction="output"') == 7
    assert scrape("dispatch_budget") == 0.25


@pytest.mark.parametrize(
    ("said", "counted"),
    [
        ("rejected-saturated", "rejected-saturated"),
        ("", "unknown"),
        ("a word of another router", "other"),
        ("other", "other"),
    ],
)
def test_shedding_counts_by_the_routers_reason(
    metrics: Metrics, queue: QueueMetrics, said: str, counted: str
) -> None:
    queue.shed(said)
    scrape = Scrape(metrics)
    assert {name for name in COUNTERS if scrape(name)} == {"shedded_requests_total"}
    by_reason = {
        reason: scrape("shed_reason_total", f'{QUEUE},reason="{reason}"') for reason in SHED_REASONS
    }
    assert by_reason == dict.fromkeys(SHED_REASONS, 0) | {counted: 1}


def test_gauges_go_up_and_down(metrics: Metrics, queue: QueueMetrics) -> None:
    for gauge in (queue.queue_depth, queue.inflight, queue.gate_waiting):
        gauge.inc()
        gauge.inc()
        gauge.dec()
    scrape = Scrape(metrics)
    for name in ("queue_depth", "inflight_requests", "gate_waiting_requests"):
        assert scrape(name) == 1


def test_histograms_count_a_value_on_a_bound_in_its_bucket(
    metrics: Metrics, queue: QueueMetrics
) -> None:
    for value in (10, 10.5, 500_000):
        queue.inference_latency(value)
    queue.queue_residence(1)
    queue.message_latency(2)
    scrape = Scrape(metrics)
    name = "inference_latency_time_millis"
    assert scrape(f"{name}_bucket", f'{QUEUE},le="10"') == 1
    assert scrape(f"{name}_bucket", f'{QUEUE},le="25"') == 2
    assert scrape(f"{name}_bucket", f'{QUEUE},le="120000"') == 2
    assert scrape(f"{name}_bucket", f'{QUEUE},le="+Inf"') == 3
    assert scrape(f"{name}_sum") == 500_020.5
    assert scrape("queue_residence_time_millis_count") == 1
    assert scrape("message_latency_time_millis_count") == 1


def test_the_backlog_is_a_snapshot(metrics: Metrics, queue: QueueMetrics) -> None:
    queue.backlog(Backlog(waiting=9, parked=2, deadlines=(1, 3, *([3] * 12), 9)))
    queue.backlog(Backlog(waiting=3, parked=1, deadlines=(1, *([2] * 13), 3)))
    scrape = Scrape(metrics)
    assert scrape("broker_backlog") == 4
    assert scrape("broker_backlog_source_available") == 1
    name = "deadline_proximity_millis"
    assert scrape(f"{name}_bucket", f'{QUEUE},le="0"') == 1
    assert scrape(f"{name}_bucket", f'{QUEUE},le="1000"') == 2
    assert scrape(f"{name}_bucket", f'{QUEUE},le="+Inf"') == scrape(f"{name}_count") == 3
    assert scrape(f"{name}_sum") == 0 + 1000 + 86_400_000


def test_an_unreadable_backlog_leaves_the_last_figures(
    metrics: Metrics, queue: QueueMetrics
) -> None:
    queue.backlog(Backlog(waiting=9, deadlines=(*([0] * 14), 9)))
    queue.backlog(None)
    scrape = Scrape(metrics)
    assert scrape("broker_backlog") == 9
    assert scrape("broker_backlog_source_available") == 0
    assert scrape("deadline_proximity_millis_count") == 9


def test_an_age_stands_only_as_long_as_it_is_known(metrics: Metrics, queue: QueueMetrics) -> None:
    name = "broker_oldest_message_age_seconds"
    for unknown in (Backlog(waiting=0), None):
        queue.backlog(Backlog(waiting=1, oldest_age=7.5))
        assert Scrape(metrics)(name) == 7.5
        queue.backlog(unknown)
        assert Scrape(metrics)(name) is None


def test_counts_that_do_not_fit_the_bounds_are_an_error(queue: QueueMetrics) -> None:
    with pytest.raises(ValueError, match="2 counts for 14 bounds"):
        queue.backlog(Backlog(waiting=1, deadlines=(0, 1)))


def test_a_gates_reading(metrics: Metrics, queue: QueueMetrics) -> None:
    labels = f'{QUEUE},inference_pool="i"'
    seen = GateState(type="x", budget=0.3, value=0.5, threshold=0.2, pool="i")
    queue.gate_reading(seen)
    scrape = Scrape(metrics)
    assert scrape("gate_metric_value", labels) == 0.5
    assert scrape("gate_metric_threshold", labels) == 0.2
    assert scrape("gate_metric_source_available", labels) == 1

    queue.gate_reading(msgspec.structs.replace(seen, available=False, value=0.0))
    scrape = Scrape(metrics)
    assert scrape("gate_metric_value", labels) == 0.5  # the last that was read
    assert scrape("gate_metric_source_available", labels) == 0


def test_a_gate_that_never_read_its_source_shows_that(
    metrics: Metrics, queue: QueueMetrics
) -> None:
    queue.gate_reading(GateState(type="x", budget=0.0, available=False, pool="i"))
    assert Scrape(metrics)("gate_metric_source_available", f'{QUEUE},inference_pool="i"') == 0


def test_a_gate_without_a_source_shows_nothing(metrics: Metrics, queue: QueueMetrics) -> None:
    queue.gate_reading(GateState(type="constant", budget=1.0))
    assert "gate_metric_source_available" not in Scrape(metrics).names()


def test_a_pools_gate_has_no_queue(metrics: Metrics, pool: PoolMetrics) -> None:
    pool.worker_limit(64)
    pool.gate_decision("error")
    pool.gate_reading(GateState(type="x", budget=1.0, value=1.0, pool="i"))
    scrape = Scrape(metrics)
    nobody = 'queue_id="",queue_name="",pool_name="p"'
    assert scrape("pool_worker_limit", 'pool_name="p"') == 64
    assert scrape("gate_decisions_total", f'{nobody},reason="error"') == 1
    assert scrape("gate_decisions_total", f'{nobody},reason="dropped"') == 0
    assert scrape("gate_metric_value", f'{nobody},inference_pool="i"') == 1


def test_drain_limits_are_only_of_pools_that_have_one(metrics: Metrics, pool: PoolMetrics) -> None:
    assert "drain_limit_rps" not in Scrape(metrics).names()
    limit = metrics.drain_limit("p")
    assert Scrape(metrics)("drain_limit_rps", 'pool_name="p"') == 0
    limit.leased(rps=2.5, valid=True, valid_until=1_764_000_000.5)
    scrape = Scrape(metrics)
    assert scrape("drain_limit_rps", 'pool_name="p"') == 2.5
    assert scrape("drain_limit_lease_valid", 'pool_name="p"') == 1
    assert scrape("drain_limit_valid_until_seconds", 'pool_name="p"') == 1_764_000_000.5


def test_started_requests_count_for_the_tenants_that_are_named(metrics: Metrics) -> None:
    names = {"team": {"red": "red"}, "userid": {"a": "a", "": "a"}}
    tenants = metrics.tenants("p", names)

    def counted(attribute: str) -> dict[str, float | None]:
        scrape = Scrape(metrics)
        return {
            tenant: scrape(
                "tenant_started_requests_total",
                f'pool_name="p",attribute="{attribute}",tenant="{tenant}"',
            )
            for tenant in (*names[attribute].values(), "*")
        }

    assert counted("userid") == {"a": 0, "*": 0}
    tenants.started({"userid": "a"})
    tenants.started({})
    tenants.started({"userid": "a", "team": "red"})
    tenants.started({"userid": "somebody", "team": "blue"})
    tenants.started({"userid": "*"})
    assert counted("userid") == {"a": 3, "*": 2}
    assert counted("team") == {"red": 1, "*": 4}, "each attribute tells of every request"
    metrics.tenants("p", names).started({"userid": "a"})
    assert counted("userid") == {"a": 4, "*": 2}


def test_a_request_counts_under_the_name_that_its_quota_counts_under(metrics: Metrics) -> None:
    long = "x" * 10_000
    tenants = metrics.tenants("p", {"userid": {canonical(long): "long"}})
    tenants.started({"userid": long})
    labels = 'pool_name="p",attribute="userid",tenant="%s"'
    scrape = Scrape(metrics)
    assert scrape("tenant_started_requests_total", labels % "long") == 1
    assert scrape("tenant_started_requests_total", labels % "*") == 0


def test_quotas_are_shown_as_long_as_they_are_told(metrics: Metrics) -> None:
    a, b = ("x", "a"), ("x", "b")
    metrics.quotas(in_use={a: 1, b: 2}, limits={a: 3, b: 4})
    scrape = Scrape(metrics)
    assert scrape("quota_in_use", 'quota="x",tenant="b"') == 2
    assert scrape("quota_limit", 'quota="x",tenant="b"') == 4
    metrics.quotas(in_use={}, limits={a: 3})
    scrape = Scrape(metrics)
    assert "quota_in_use" not in scrape.names()
    assert scrape("quota_limit", 'quota="x",tenant="a"') == 3
    assert scrape("quota_limit", 'quota="x",tenant="b"') is None


def test_configuration_reloads(metrics: Metrics) -> None:
    metrics.config_reloaded(1_764_000_000.0)
    metrics.config_reload_failed()
    metrics.config_reload_failed()
    scrape = Scrape(metrics)
    assert scrape("queue_config_reloads_total", 'result="success"') == 1
    assert scrape("queue_config_reloads_total", 'result="error"') == 2
    assert scrape("queue_config_last_success_timestamp_seconds", "") == 1_764_000_000


def test_asking_twice_for_a_queue_goes_on_counting(metrics: Metrics, queue: QueueMetrics) -> None:
    queue.succeeded()
    again = metrics.queue("q", "n", "p")
    again.succeeded()
    again.inference_latency(1)
    assert Scrape(metrics)("successful_requests_total") == 2


def test_two_registries_do_not_meet(queue: QueueMetrics) -> None:
    queue.succeeded()
    other = Metrics()
    other.queue("q", "n", "p")
    assert Scrape(other)("successful_requests_total") == 0


def test_the_reasons_are_those_of_the_gates() -> None:
    assert set(GATE_REASONS) == {reason.value for reason in Reason}


def test_the_bounds_of_the_backlog_ascend() -> None:
    assert list(DEADLINE_BOUNDS_MS) == sorted(set(DEADLINE_BOUNDS_MS))
    assert len(DEADLINE_BOUNDS_MS) == 14
