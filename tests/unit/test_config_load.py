"""Start-up errors: all of them at once, each with its path, its value and what is allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from async_processor.admission.settings import (
    ConstantGate,
    EndpointScrapeGate,
    GateSettings,
    GatingMode,
    LocalMaxConcurrencyGate,
    PrometheusQueryGate,
    ScrapeAdmission,
)
from async_processor.config.load import load, load_text, warnings
from async_processor.config.settings import MemoryTransport, RedisTransport, Settings
from async_processor.errors import ConfigurationError

MINIMAL = "transport: {queues: [{queue_name: q, igw_base_url: 'http://gw:80'}]}\n"
GATES = [model.model_fields["type"].default for model in get_args(get_args(GateSettings)[0])]
MISTAKES = yaml.safe_load((Path(__file__).parent / "config_mistakes.yaml").read_text())


def read(text: str, **environ: str) -> Settings:
    return load_text(text, environ, name="config.yaml")


def problems(text: str, **environ: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        read(text, **environ)
    return [str(problem) for problem in caught.value.problems]


def with_gate(gate: str) -> str:
    queue = f"{{queue_name: q, igw_base_url: 'http://gw', gate: {gate}}}"
    return f"transport: {{queues: [{queue}]}}\nprometheus: {{url: 'http://p:9090'}}\n"


def gate_of(text: str) -> Any:
    return read(with_gate(text)).queues[0].gate


def test_the_least_is_one_queue() -> None:
    settings = read(MINIMAL)
    assert isinstance(settings.transport, RedisTransport)
    assert settings.transport.url == "redis://localhost:6379/0"
    assert settings.queues[0].id == "q"
    assert settings.queues[0].gate == ConstantGate()
    assert settings.worker_pools[0].id == "default"
    assert settings.worker_pools[0].workers == 64
    assert settings.prometheus is None


def test_durations_and_sizes_become_seconds_and_bytes() -> None:
    settings = read(
        MINIMAL + "drain_timeout: 1h30m\nretry: {base_delay: 500ms, max_delay: 60}\n"
        "limits: {payload_bytes: 1KiB}\n"
    )
    assert settings.drain_timeout == 5400
    assert (settings.retry.base_delay, settings.retry.max_delay) == (0.5, 60)
    assert settings.limits.payload_bytes == 1024


def test_numbers_may_come_from_the_environment() -> None:
    settings = read(
        MINIMAL + "worker_pools: [{id: default, workers: '${WORKERS}'}]\n"
        "server: {metrics_port: '${PORT:-9191}'}\n",
        WORKERS="8",
    )
    assert settings.worker_pools[0].workers == 8
    assert settings.server.metrics_port == 9191


@pytest.mark.parametrize(
    ("written", "environ", "url"),
    [
        ("", {}, "redis://localhost:6379/0"),
        ("", {"REDIS_URL": "redis://env/1"}, "redis://env/1"),
        ("", {"REDIS_URL": ""}, "redis://localhost:6379/0"),
        ("url: redis://own/2,", {"REDIS_URL": "redis://env/1"}, "redis://own/2"),
        ("url: ,", {"REDIS_URL": "redis://env/1"}, "redis://env/1"),
    ],
)
def test_the_broker_is_the_files_then_the_environments(
    written: str, environ: dict[str, str], url: str
) -> None:
    text = f"transport: {{{written} queues: [{{queue_name: q, igw_base_url: 'http://gw'}}]}}"
    transport = read(text, **environ).transport
    assert isinstance(transport, RedisTransport)
    assert transport.url == url


def test_a_memory_transport_has_no_url() -> None:
    text = "transport: {type: memory, queues: [{igw_base_url: 'http://gw'}]}"
    assert isinstance(read(text, REDIS_URL="redis://env/1").transport, MemoryTransport)


def test_the_go_names_of_the_lease_are_accepted() -> None:
    text = MINIMAL.replace(
        "{queues", "{claim_lease_ttl_seconds: 300, claim_reclaim_interval_ms: 15000, queues"
    )
    transport = read(text).transport
    assert (transport.lease_ttl, transport.reclaim_interval) == (300, 15)


def test_a_key_with_nothing_behind_it_is_not_set() -> None:
    assert read(MINIMAL + "retry:\n  # base_delay: 1s\nprometheus:\n") == read(MINIMAL)


def test_gate_parameters_may_be_texts_and_numbers() -> None:
    assert gate_of("{type: local-max-concurrency, limit: '3', gating_mode: blocking}") == (
        LocalMaxConcurrencyGate(limit=3, gating_mode=GatingMode.BLOCKING)
    )
    assert gate_of("{type: prometheus-query, query: up, fallback: '0.5', pool: 7}") == (
        PrometheusQueryGate(query="up", fallback=0.5, pool="7")
    )
    assert gate_of(
        "{type: endpoint-scrape, urls: 'http://a/metrics', metric: m, labels: {port: 8000}, "
        "max_count_per_pod: '5', admission: off}"
    ) == EndpointScrapeGate(
        urls=("http://a/metrics",),
        metric="m",
        labels={"port": "8000"},
        max_count_per_pod=5,
        admission=ScrapeAdmission.OFF,
    )


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake["problem"].split(": ")[0])
def test_a_mistake_is_one_line_with_path_value_and_rule(mistake: dict[str, str]) -> None:
    expected = mistake["problem"].replace("<gates>", ", ".join(GATES))
    assert problems(mistake["file"]) == [expected]


PROOF = [
    (
        "{type: constan}",
        "gate.type: unknown type 'constan'; did you mean 'constant'?",
    ),
    (
        "{type: prometheus-saturation, pool: p, treshold: 0.8}",
        "gate.treshold: unknown key; did you mean 'threshold'?",
    ),
    (
        "{type: prometheus-saturation, pool: p, threshold: 80}",
        "gate.threshold: got 80, must be 1 or less",
    ),
    ("{type: redis-quota, limit: 0}", "gate.limit: got 0, must be 1 or more"),
    (
        "{type: redis-quota, limit: 1, window: -1m}",
        (
            "gate.window: got '-1m', must be a duration like 500ms, 5s, 2m or 1h, or a number of "
            "seconds"
        ),
    ),
    ("{type: prometheus-saturation}", "gate.pool: is required"),
    (
        """{type: wait-on-refuse, gate: '{"type": "redis-quota", "limit" 1}'}""",
        (
            """gate.gate: got '{"type": "redis-quota", "limit" 1}', must be a mapping of keys to """
            "values; as JSON it is broken at line 1, column 33: Expecting ':' delimiter"
        ),
    ),
]


@pytest.mark.parametrize(("gate", "expected"), PROOF)
def test_a_gate_that_would_let_traffic_through_or_stop_it_stops_the_start(
    gate: str, expected: str
) -> None:
    assert problems(with_gate(gate)) == [f"transport.queues[0].{expected}"]


def test_what_else_stops_the_start_is_told_in_one_go() -> None:
    assert problems(
        """
transport:
  queues:
    - {queue_name: a, igw_base_url: 'http://gw', gate: {type: prometheus-query, query: up}}
    - {queue_name: a, igw_base_url: 'tcp://gw'}
inference: {headers: {"X Tenant": a}}
"""
    ) == [
        (
            "transport.queues[1].igw_base_url: got 'tcp://gw', must be an http:// or https:// URL "
            "with a host"
        ),
        "inference.headers.X Tenant: the name must be a header name (letters, digits and - _ .)",
        (
            "transport.queues[1].queue_name: got 'a', which transport.queues[0].queue_name has "
            "already; it must be unique"
        ),
        "transport.queues[0].gate.type: got 'prometheus-query', which needs prometheus.url",
    ]


def test_a_token_that_came_out_empty_opens_nothing() -> None:
    text = MINIMAL + "server: {bearer_token: '${TOKEN}'}"
    assert problems(text, TOKEN="") == [
        (
            "server.bearer_token: its variables are empty, and without a token everybody may read "
            "/status"
        )
    ]
    assert read(text.replace("TOKEN", "TOKEN:-")).server.bearer_token == ""
    assert read(text, TOKEN="secret").server.bearer_token == "secret"


def test_all_mistakes_are_found_in_one_go() -> None:
    found = problems(
        """
transport:
  lease_ttl: 1ms
  queues:
    - {queue_name: a, igw_base_url: '${NOWHERE}', gate: {type: constan}}
    - {queue_name: a, igw_base_url: x, worker_pool_id: gpus, labels: [1]}
worker_pools: [{id: default, workers: 0}]
drain_timout: 5s
"""
    )
    assert [problem.split(": ")[0] for problem in found] == [
        "transport.queues[0].igw_base_url",
        "transport.queues[0].gate.type",
        "transport.queues[1].igw_base_url",
        "transport.queues[1].labels",
        "worker_pools[0].workers",
        "drain_timout",
        "transport.queues[1].queue_name",
        "transport.queues[1].worker_pool_id",
        "transport.lease_ttl",
    ]


@pytest.mark.parametrize(
    "text",
    [
        MINIMAL.replace("{queues", "{url: 'http://u:hunter2@h', queues"),
        MINIMAL + "server: {bearer_token: [hunter2]}",
        MINIMAL + 'inference: {headers: {Authorization: "hunter2\\n"}}',
        MINIMAL + "inference: {headers: {Authorization: [hunter2]}}",
        MINIMAL + "inference: {headers: 'Bearer hunter2'}",
        MINIMAL.replace("http://gw:80", "ftp://u:hunter2@gw"),
        MINIMAL + "prometheus: {url: 'x://u:hunter2@p'}",
    ],
)
def test_no_secret_stands_in_an_error(text: str) -> None:
    (problem,) = problems(text)
    assert "hunter2" not in problem
    assert "***" in problem


def test_a_long_value_is_cut() -> None:
    (problem,) = problems(MINIMAL + f"server: {{health_port: {'x' * 500}}}")
    assert len(problem) < 150


def test_a_file_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(MINIMAL)
    assert load(tmp_path / "config.yaml", {}).queues[0].queue_name == "q"


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (
            "drain_timeout: 30s",
            (
                "drain_timeout: 30s is shorter than inference.request_timeout (300s): a stop may "
                "cut calls off, which then run again elsewhere"
            ),
        ),
        (
            "retry: {base_delay: 10s, max_delay: 5s}",
            (
                "retry.base_delay: 10s is longer than retry.max_delay (5s), which caps every wait: "
                "the waits do not grow"
            ),
        ),
        (
            "worker_pools: [{id: default}, {id: idle}]",
            "worker_pools[1].id: no queue names the pool 'idle', its workers stay idle",
        ),
        (
            "worker_pools: [{workers: 2, gate: {type: local-max-concurrency, limit: 3}}]",
            "worker_pools[0].gate.limit: 3 can't be reached: the pool 'default' has 2 workers",
        ),
        (
            "inference: {tls: {insecure: true}}",
            (
                "inference.tls.insecure: true accepts any certificate: whoever sits between can "
                "read and change everything"
            ),
        ),
        (
            "worker_pools: [{gate: {type: redis-leased-rate, control_key: k, shared: true}}]",
            (
                "worker_pools[0].gate.shared: true changes nothing: all replicas count together "
                "in Redis already"
            ),
        ),
    ],
)
def test_what_is_probably_not_meant_is_only_a_warning(text: str, warning: str) -> None:
    assert [str(each) for each in warnings(read(MINIMAL + text))] == [warning]


TWO_QUEUES = """
transport:
  queues:
    - {queue_name: a, igw_base_url: 'http://gw', worker_pool_id: p, gate: %s}
    - {queue_name: b, igw_base_url: 'http://gw', worker_pool_id: %s}
worker_pools: [{id: p}, {id: p2}]
"""


@pytest.mark.parametrize(
    ("gate", "where"),
    [
        ("{type: wait-on-refuse, gate: {type: redis, url: 'redis://h'}}", "gate"),
        ("{type: local-max-concurrency, limit: 2, gating_mode: blocking}", "gate"),
        (
            (
                "{type: composite, gates: [{type: constant}, {type: tier-priority-admission, "
                "saturation_gate: local-max-concurrency, saturation_gate_params: {limit: 2}}]}"
            ),
            "gate.gates[1]",
        ),
        ("{type: local-max-concurrency, limit: 2}", ""),
        ("{type: redis, url: 'redis://h'}", ""),
    ],
)
def test_who_waits_in_memory_in_a_pool_of_several_queues_is_told(gate: str, where: str) -> None:
    text = (
        f"transport.queues[0].{where}: requests that wait at it keep their workers, all of the "
        "pool 'p' maybe, from the pool's other queues: better a pool of its own, or the gate at "
        "the pool"
    )
    found = [str(each) for each in warnings(read(TWO_QUEUES % (gate, "p")))]
    assert [each for each in found if "keep their workers" in each] == ([text] if where else [])
    apart = [str(each) for each in warnings(read(TWO_QUEUES % (gate, "p2")))]
    assert not any("keep their workers" in each for each in apart)


@pytest.mark.parametrize(
    ("setting", "warning"),
    [
        (
            "reclaim_interval: 2m",
            (
                "transport.reclaim_interval: 120s is longer than transport.lease_ttl (60s): what a "
                "killed process held waits for both"
            ),
        ),
        (
            "lease_ttl: 1h",
            (
                "transport.lease_ttl: 3600s: what a killed process held waits so long. A lease is "
                "extended while a request runs; 60s are enough for calls of any length"
            ),
        ),
        (
            "url: 'redis://h', tls: {insecure: true}",
            "transport.tls: has no effect: transport.url is not encrypted (rediss:// is)",
        ),
        (
            "url: 'rediss://h', tls: {insecure: true}",
            (
                "transport.tls.insecure: true accepts any certificate: whoever sits between can "
                "read and change everything"
            ),
        ),
    ],
)
def test_what_is_doubtful_about_the_broker_is_told(setting: str, warning: str) -> None:
    text = MINIMAL.replace("{queues", f"{{{setting}, queues")
    assert [str(each) for each in warnings(read(text))] == [warning]


def test_a_tier_that_nobody_knows_is_told_where_tiers_count() -> None:
    labelled = MINIMAL.replace("queue_name: q", "queue_name: q, labels: {tier: bacth}")
    assert warnings(read(labelled)) == []
    for policy in ("tier-priority", "weighted-fair"):
        told = warnings(read(labelled + f"merge_policy: {{type: {policy}}}"))
        assert [str(each) for each in told] == [
            (
                "transport.queues[0].labels.tier: 'bacth' is none of interactive, async, batch: it "
                "is batch"
            )
        ]


QUOTA = "igw_base_url: 'http://gw:80', gate: {type: redis-quota, %s}"


@pytest.mark.parametrize(
    ("gate", "expected"),
    [
        (
            "limit: 5",
            [
                (
                    "gate.missing_attribute: requests without metadata 'userid' pass uncounted; "
                    "refuse, or a tenant to count them under, would limit them"
                )
            ],
        ),
        ("limit: 5, missing_attribute: allow", []),
        (
            "limit: 5, missing_attribute: refuze",
            ["gate.missing_attribute: 'refuze' is taken for a tenant; did you mean 'refuse'?"],
        ),
        (
            "limits: {a: 1}, missing_attribute: refuse",
            ["gate.limit: is not set: tenants that limits does not name have no limit"],
        ),
        ("limits: {a: 1, '*': 2}, missing_attribute: refuse", []),
        ("limits: {a: 1}, missing_attribute: allow, gating_mode: classifying", []),
        (
            "limit: 1, limits: {a: 40, b: 30}, mode: concurrency, missing_attribute: refuse",
            [
                "gate.limits: 70 at once can't be reached: the pool 'default' has 64 workers",
            ],
        ),
        (
            "limit: 65, mode: concurrency, missing_attribute: refuse",
            ["gate.limit: 65 at once can't be reached: the pool 'default' has 64 workers"],
        ),
    ],
)
def test_what_a_quota_lets_slip_is_told(gate: str, expected: list[str]) -> None:
    text = MINIMAL.replace("igw_base_url: 'http://gw:80'", QUOTA % gate)
    found = [str(each) for each in warnings(read(text))]
    assert found == [f"transport.queues[0].{each}" for each in expected]


def test_a_quotas_own_redis_shows_no_password() -> None:
    text = MINIMAL.replace(
        "igw_base_url: 'http://gw:80'", QUOTA % "limit: 1, url: 'redis://u:hunter2@r'"
    )
    assert "hunter2" not in repr(read(text))


def test_the_defaults_warn_of_nothing() -> None:
    assert warnings(read(MINIMAL)) == []
