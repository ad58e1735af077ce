"""What several processes show as one: the sums of what they count, also of those that have ended,
and of everything else what one of them says."""

from __future__ import annotations

import msgspec
import pytest

from async_processor.admission.base import GateState
from async_processor.telemetry import pages
from async_processor.telemetry.metrics import Metrics
from async_processor.telemetry.pages import Page, counts_of, merged
from async_processor.transport.base import Backlog

PREFIX = "llm_d_async_async_"
QUEUE = ("i", "n", "p")


def of_this_process_alone(text: str) -> list[str]:
    """Without what differs from moment to moment."""
    apart = ("process_", "python_", "# HELP process_", "# HELP python_")
    return [line for line in text.splitlines() if not line.startswith(apart)]


def value(page: Page, name: str, **labels: str) -> float:
    (found,) = (
        sample.value
        for series in page
        for sample in series.samples
        if sample.name == f"{PREFIX}{name}" and labels.items() <= dict(sample.labels).items()
    )
    return found


def page(*, calls: int, running: int = 0, waiting: int = 0, budget: float = 1.0) -> Page:
    metrics = Metrics()
    queue = metrics.queue(*QUEUE)
    for _ in range(calls):
        queue.dispatched()
        queue.inference_latency(40)
    for _ in range(running):
        queue.inflight.inc()
    queue.backlog(Backlog(waiting=waiting, deadlines=(*[0] * 14, waiting)))
    queue.dispatch_budget(budget)
    metrics.pool("p").worker_limit(3)
    return metrics.page()


def test_one_page_is_shown_as_the_process_itself_shows_it() -> None:
    metrics = Metrics(lambda: "0123456789abcdef")
    metrics.queue(*QUEUE).inference_latency(40)
    alone = pages.exposition(merged([metrics.page()])).decode()
    assert of_this_process_alone(alone) == of_this_process_alone(metrics.exposition().decode())
    traced = pages.openmetrics_exposition(merged([metrics.page()])).decode()
    assert of_this_process_alone(traced) == of_this_process_alone(metrics.openmetrics().decode())
    assert "0123456789abcdef" in traced


def test_a_page_survives_its_way() -> None:
    sent = page(calls=3, running=1)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(sent), type=Page) == sent


def test_what_is_counted_is_summed_up() -> None:
    both = merged([page(calls=3), page(calls=4)])
    assert value(both, "dispatched_requests_total") == 7
    assert value(both, "inference_latency_time_millis_bucket", le="50") == 7
    assert value(both, "inference_latency_time_millis_bucket", le="25") == 0
    assert value(both, "inference_latency_time_millis_sum") == 280


def test_what_each_has_is_summed_up_and_what_all_see_is_not() -> None:
    both = merged([page(calls=0, running=2, waiting=5), page(calls=0, running=1, waiting=6)])
    assert value(both, "inflight_requests") == 3
    assert value(both, "pool_worker_limit") == 6
    assert value(both, "broker_backlog") == 5
    assert value(both, "deadline_proximity_millis_bucket", le="+Inf") == 5


@pytest.mark.parametrize(("parts", "whole"), [((0.1, 0.2), 0.3), ((1, 1), 1), ((0, 0.5), 0.5)])
def test_parts_of_a_budget_are_the_budget(parts: tuple[float, float], whole: float) -> None:
    both = merged(page(calls=0, budget=part) for part in parts)
    assert value(both, "dispatch_budget") == whole


def test_a_source_that_one_cannot_read_is_not_available() -> None:
    def reads(available: bool) -> Page:
        metrics = Metrics()
        state = GateState(type="t", budget=1, available=available, value=0.5, threshold=0.1)
        metrics.queue(*QUEUE).gate_reading(state)
        return metrics.page()

    assert value(merged([reads(True), reads(False)]), "gate_metric_source_available") == 0
    assert value(merged([reads(True), reads(True)]), "gate_metric_source_available") == 1


def test_what_a_tenant_uses_of_its_quota_is_the_same_for_all() -> None:
    def reads(used: int) -> Page:
        metrics = Metrics()
        metrics.quotas(in_use={("x", "a"): used}, limits={("x", "a"): 5})
        metrics.tenants("p", {"userid": {"a": "a"}}).started({"userid": "a"})
        return metrics.page()

    both = merged([reads(2), reads(3)])
    assert value(both, "quota_in_use", tenant="a") == 3
    assert value(both, "quota_limit", tenant="a") == 5
    assert value(both, "tenant_started_requests_total", tenant="a") == 2


def test_of_the_dead_counts_stay_and_nothing_else() -> None:
    dead = counts_of(page(calls=5, running=2, waiting=9))
    both = merged([page(calls=1, running=1, waiting=3), dead])
    assert value(both, "dispatched_requests_total") == 6
    assert value(both, "inflight_requests") == 1
    assert value(both, "broker_backlog") == 3
    assert value(both, "deadline_proximity_millis_bucket", le="+Inf") == 3
    twice = merged([dead, counts_of(page(calls=2))])
    assert value(twice, "dispatched_requests_total") == 7


def test_every_rule_is_for_a_series_that_there_is() -> None:
    shown = {series.name for series in page(calls=0)}
    drain = Metrics()
    drain.drain_limit("p")
    shown |= {series.name for series in drain.page()}
    assert set(pages._RULES) <= shown
    assert shown >= pages._SNAPSHOTS
