"""What a reload must make anew of the gates, and what stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from async_processor.config.load import validated
from async_processor.daemon.workshop import Place, Workshop, of_pool, of_queue

LIMIT = {"type": "local-max-concurrency", "limit": 2}
QUERY = {"type": "prometheus-query", "query": "up"}
RATE = {"type": "redis-leased-rate", "control_key": "c", "url": "redis://127.0.0.1:9"}
VLLM = {"type": "vllm-pool"}


def configuration(gate: Mapping[str, Any], **changes: Any) -> Workshop:
    """One queue with this gate, and two pools with a limit each."""
    queue = {"queue_name": "q", "igw_base_url": "http://x", "gate": gate}
    pools = [{"id": name, "workers": 4, "gate": LIMIT} for name in ("default", "other")]
    settings = {
        "transport": {"type": "memory", "queues": [queue | changes.pop("queue", {})]},
        "worker_pools": pools,
        "prometheus": {"url": "http://prometheus"},
        **changes,
    }
    return Workshop(validated(settings, {}), cast("Any", None))


def made_anew(gate: Mapping[str, Any], **changes: Any) -> set[Place]:
    """The places whose gates are made anew when a configuration changes like this."""
    before, after = configuration(gate).blueprints, configuration(gate, **changes).blueprints
    return {place for place in before if before[place] != after.get(place)}


def test_nothing_changed_nothing_is_made_anew() -> None:
    assert made_anew(QUERY) == set()
    assert made_anew(LIMIT, retry={"base_delay": 1}, drain_timeout=9) == set()


def test_a_pool_that_grows_keeps_its_gates() -> None:
    pools = [{"id": name, "workers": 9, "gate": LIMIT} for name in ("default", "other")]
    assert made_anew(LIMIT, worker_pools=pools) == set()


def test_another_prometheus_concerns_those_who_ask_it() -> None:
    queue = {of_queue("q")}
    asking: Sequence[Mapping[str, Any]] = (
        QUERY,
        {"type": "wait-on-refuse", "gate": QUERY},
        {"type": "composite", "gates": [LIMIT, QUERY]},
        VLLM | {"selector": 'app="vllm"'},
        {
            "type": "tier-priority-admission",
            "saturation_gate": "prometheus-query",
            "saturation_gate_params": {"query": "up"},
        },
    )
    others: Sequence[Mapping[str, Any]] = (
        LIMIT,
        RATE,
        VLLM | {"urls": ["http://pod:8000"]},
        {"type": "composite", "gates": [LIMIT]},
    )
    for gate in asking:
        assert made_anew(gate, prometheus={"url": "http://other"}) == queue
    for gate in others:
        assert made_anew(gate, prometheus={"url": "http://other"}) == set()


def test_a_queue_that_moves_to_another_pool_gets_a_gate_for_that_pool() -> None:
    moved = {"worker_pool_id": "other"}
    assert made_anew(RATE, queue=moved) == {of_queue("q")}
    assert made_anew(LIMIT, queue=moved) == {of_queue("q")}


def test_other_parameters_concern_their_own_gate() -> None:
    assert made_anew(LIMIT, queue={"gate": LIMIT | {"limit": 3}}) == {of_queue("q")}
    pools = [{"id": "default", "workers": 4, "gate": LIMIT}, {"id": "other", "workers": 4}]
    assert made_anew(LIMIT, worker_pools=pools) == {of_pool("other")}
