"""The room of a vLLM pool: of one pod the smallest remaining share of its limits, of several pods
the mean; and what is asked of Prometheus and read from a page for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_processor.admission import vllm
from async_processor.admission.settings import VllmPoolGate
from async_processor.sensors.base import BadAnswer, Reading
from async_processor.sensors.vllm import PodLimits, PodLoad, places, pool_room, read_load

STRICT = PodLimits(kv_cache=0.8, waiting=0)
LOOSE = PodLimits(kv_cache=0.8, waiting=4, running=10)


def load(kv: float = 0.0, waiting: float = 0, running: float = 0) -> PodLoad:
    return PodLoad(kv_cache=kv, waiting=waiting, running=running)


@pytest.mark.parametrize(
    ("limits", "pod", "room"),
    [
        (STRICT, load(), 1.0),
        (STRICT, load(kv=0.2, running=500), 0.75),
        (STRICT, load(waiting=1), 0.0),
        (STRICT, load(kv=0.8), 0.0),
        (STRICT, load(kv=0.95), 0.0),
        (LOOSE, load(kv=0.2, waiting=2, running=1), 0.5),
        (LOOSE, load(kv=0.2, waiting=1, running=9), 0.1),
        (LOOSE, load(waiting=4), 0.0),
        (LOOSE, load(running=40), 0.0),
    ],
)
def test_a_pods_room_is_its_smallest_remaining_share(
    limits: PodLimits, pod: PodLoad, room: float
) -> None:
    assert pod.room(limits) == pytest.approx(room)
    assert pool_room([pod], limits) == pytest.approx(room)


def test_a_pools_room_is_the_mean_and_a_pod_that_cannot_be_read_is_full() -> None:
    assert pool_room([load(), load(kv=0.4), None, load(kv=0.8)], STRICT) == pytest.approx(1.5 / 4)


def test_one_waiting_request_anywhere_closes_a_pool_where_none_may_wait() -> None:
    assert pool_room([load(), load(), load(waiting=1)], STRICT) == 0.0
    assert pool_room([load(), load(), load(waiting=4)], LOOSE) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("settings", "starts"),
    [
        ({}, 16.0),  # an idle pool has room for as many as there are workers
        ({"max_running_per_pod": 3}, 6.0),
        ({"max_running_per_pod": 100}, 200.0),
    ],
)
def test_two_idle_pods_have_so_many_places(settings: dict[str, float], starts: float) -> None:
    gate = VllmPoolGate.model_validate({"urls": ["http://a", "http://b"], **settings})
    limits = PodLimits(kv_cache=0.85, waiting=0, running=gate.max_running_per_pod)
    reading = Reading(value=1.0, capacity=places(2, limits), taken_at=0)
    assert vllm.rule(gate).starts(reading, workers=16) == starts


def test_of_the_places_so_many_are_free_as_no_pod_runs_more_than_it_may() -> None:
    limits = PodLimits(kv_cache=0.8, waiting=4, running=3)
    loads = [load(running=2), load(running=4), load(kv=0.6, running=1), None]
    room, whole = pool_room(loads, limits), places(len(loads), limits)
    assert whole == 12
    assert room * whole == pytest.approx(1 + 0 + 0.25 * 3 + 0)


_LOADS = st.lists(
    st.none() | st.builds(load, st.floats(0, 1), st.integers(0, 99), st.integers(0, 99)),
    min_size=1,
)


@given(_LOADS, st.sampled_from([STRICT, LOOSE]))
def test_room_is_a_share_and_another_full_pod_only_lessens_it(
    loads: list[PodLoad | None], limits: PodLimits
) -> None:
    room = pool_room(loads, limits)
    assert 0 <= room <= 1
    assert pool_room([*loads, None], limits) <= room


PAGE = """# HELP vllm:num_requests_running Number of requests in model execution batches.
vllm:num_requests_running{engine="0"} 3
vllm:num_requests_running{engine="1"} 4
vllm:num_requests_waiting{engine="0"} 1
vllm:num_requests_waiting{engine="1"} 0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 1
vllm:gpu_cache_usage_perc{engine="0"} 0.25
vllm:gpu_cache_usage_perc{engine="1"} 0.5
"""


def test_the_engines_of_a_pod_are_taken_together_and_the_older_name_is_known() -> None:
    assert read_load(PAGE) == load(kv=0.5, waiting=1, running=7)
    today = PAGE + 'vllm:kv_cache_usage_perc{engine="0"} 0.75\n'
    assert read_load(today).kv_cache == 0.75


@pytest.mark.parametrize(
    ("page", "why"),
    [
        ("<html>sign in</html>", "no metrics page"),
        ("", "has no series vllm:kv_cache_usage_perc"),
        (PAGE.replace("vllm:num_requests_running", "x"), "no series vllm:num_requests_running"),
        (PAGE.replace("0.25", "NaN"), "vllm:gpu_cache_usage_perc is no number"),
        (PAGE.replace("} 4", "} +Inf"), "vllm:num_requests_running is no number"),
    ],
)
def test_a_page_without_a_usable_value_cannot_be_read(page: str, why: str) -> None:
    with pytest.raises(BadAnswer, match=why):
        read_load(page)


@pytest.mark.parametrize("url", ["http://a:8000", "http://a:8000/", "http://a:8000/metrics"])
def test_a_servers_page_is_found(url: str) -> None:
    assert vllm.page(url) == "http://a:8000/metrics"


def test_a_selector_may_stand_in_braces_and_a_host_without_its_port() -> None:
    assert VllmPoolGate(selector='{job="a"}').selector == 'job="a"'
    assert VllmPoolGate(dns="vllm.prod.svc").dns == "vllm.prod.svc:8000"
    assert VllmPoolGate(dns="vllm:80").dns == "vllm:80"


def test_only_the_limits_that_are_set_are_asked_for() -> None:
    query = vllm.room_query(VllmPoolGate(selector='job="a"', max_waiting_per_pod=5))
    assert 'vllm:num_requests_waiting{job="a"}) >= 0) / 5' in query
    assert '"running"' not in query
    limited = VllmPoolGate(selector='job="a"', max_running_per_pod=32)
    assert '"running"' in vllm.room_query(limited)
    assert "32 * count(" in vllm.query(limited)
