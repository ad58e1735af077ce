"""One metric is picked out of a metrics page as Prometheus' own parser would."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.exposition import generate_latest

from async_processor.sensors.exposition import NotExposition, values

PAGE = """\
# HELP vllm:num_requests_waiting Number of requests waiting.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting{engine="1",model_name="m"} 4.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 9.0
plain 1.5
dated 2 1764000000000
spaced{ a = "x" , b="y", } 7
"""


def test_every_series_of_the_name_and_no_other() -> None:
    assert values(PAGE, "vllm:num_requests_waiting", {}) == [3.0, 4.0]
    assert values(PAGE, "vllm:num_requests_waiting", {"engine": "1"}) == [4.0]
    assert values(PAGE, "vllm:num_requests_waiting", {"engine": "2"}) == []
    assert values(PAGE, "vllm:num_requests", {}) == []


def test_series_without_labels_with_a_time_and_with_spaces() -> None:
    assert values(PAGE, "plain", {}) == [1.5]
    assert values(PAGE, "plain", {"a": "x"}) == []
    assert values(PAGE, "dated", {}) == [2.0]
    assert values(PAGE, "spaced", {"a": "x", "b": "y"}) == [7.0]


def test_values_that_are_no_finite_numbers_are_told_as_they_stand() -> None:
    found = values("a NaN\na +Inf\na -Inf\na 1e3\n", "a", {})
    assert math.isnan(found[0])
    assert found[1:] == [math.inf, -math.inf, 1000.0]


@pytest.mark.parametrize(
    "page",
    [
        "<html><body>sign in</body></html>",
        "  \n<!DOCTYPE html>",
        '{"status": "ok"}',
        "error: no such page",
        "404 page not found",
    ],
)
def test_another_kind_of_page_does_not_pass_for_one_without_the_series(page: str) -> None:
    with pytest.raises(NotExposition):
        values(page, "metric", {})


def test_an_empty_page_is_a_page() -> None:
    assert values("", "metric", {}) == []


@pytest.mark.parametrize(
    "line", ["metric{a=b} 1", 'metric{a="b" 1', "metric{} one", "metric ", 'metric{a="b"}']
)
def test_a_broken_line_of_the_metric_is_an_error(line: str) -> None:
    with pytest.raises(NotExposition):
        values(f"# c\n{line}\n", "metric", {})


label_values = st.text(st.characters(blacklist_categories=["Cs"]), max_size=20)


@given(
    st.dictionaries(st.tuples(label_values, label_values), st.floats(allow_nan=False), max_size=5),
    st.data(),
)
def test_what_the_client_library_writes_is_read_back(
    series: dict[tuple[str, str], float], data: st.DataObject
) -> None:
    registry = CollectorRegistry()
    gauge = Gauge("the_metric", "Help\nof two lines", ("a", "b"), registry=registry)
    Counter("the_metric_other", "Another", ("a",), registry=registry).labels("x").inc()
    for labels, number in series.items():
        gauge.labels(*labels).set(number)
    page = generate_latest(registry).decode()
    assert sorted(values(page, "the_metric", {})) == sorted(series.values())
    if series:
        wanted = data.draw(st.sampled_from(sorted(series)))
        found = values(page, "the_metric", dict(zip("ab", wanted, strict=True)))
        assert found == [series[wanted]]


@given(st.text())
def test_no_page_breaks_the_reader(page: str) -> None:
    with contextlib.suppress(NotExposition):
        values(f"# c\nmetric{page}", "metric", {})
