"""The Go implementation's flags and documents mean here what they mean there, and the YAML that
`config migrate` prints for them means the same again.

The cases in `go_config/` are complete command lines with their files, and the YAML expected.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from async_processor.admission.settings import (
    CompositeGate,
    EndpointScrapeGate,
    LocalMaxConcurrencyGate,
    PrometheusBudgetGate,
    PrometheusSaturationGate,
    QuotaMode,
    RedisGate,
    RedisLeasedRateGate,
    RedisQuotaGate,
    ScrapeAdmission,
    TierPriorityAdmissionGate,
    WaitOnRefuseGate,
)
from async_processor.config import go_documents, go_flags
from async_processor.config.load import load, load_text
from async_processor.config.migrate import migrate
from async_processor.config.run_inputs import RunInputs, settings_from
from async_processor.config.settings import RedisTransport
from async_processor.errors import ConfigurationError
from async_processor.transforms.settings import GcsUriMultipartTransform

CASES = sorted((Path(__file__).parent / "go_config").glob("*.yaml"))


class Case:
    """A command line in its environment; `{dir}` in it is where its files lie."""

    def __init__(self, path: Path, directory: Path) -> None:
        case = yaml.safe_load(path.read_text())
        for name, text in case.get("files", {}).items():
            (directory / name).write_text(text)
        self.argv = [word.replace("{dir}", str(directory)) for word in case["args"]]
        self.environ: Mapping[str, str] = case.get("environ", {})
        self.yaml: str = case["yaml"]
        self.notes: list[str] = case["notes"]


@pytest.fixture(params=CASES, ids=lambda path: path.stem)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    return Case(request.param, tmp_path)


def test_there_are_cases() -> None:
    assert len(CASES) >= 5


def test_the_yaml_and_the_notes_are_as_expected(case: Case) -> None:
    migration = migrate(case.argv, case.environ)
    assert migration.yaml == case.yaml
    assert list(migration.notes) == case.notes


def test_the_yaml_means_the_same_as_the_flags(case: Case) -> None:
    printed = migrate(case.argv, case.environ).yaml
    from_flags = settings_from(case.argv, case.environ).settings
    assert load_text(printed, case.environ, name="migrated.yaml") == from_flags


def run(*argv: str, **environ: str) -> RunInputs:
    return settings_from(argv, environ)


def document(**keys: Any) -> str:
    queue = {"queue_name": "q", "igw_base_url": "http://gw", **keys.pop("queue", {})}
    return json.dumps({"url": "redis://r", "queues": [queue], **keys})


def sorted_set(*argv: str, environ: Mapping[str, str] | None = None, **keys: Any) -> RunInputs:
    words = ["--transport=redis-sortedset", f"--transport-config={document(**keys)}", *argv]
    return settings_from(words, environ or {})


def problems(*argv: str, **environ: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        run(*argv, **environ)
    return [str(problem) for problem in caught.value.problems]


def document_problems(*argv: str, **keys: Any) -> list[str]:
    config = f"--transport-config={document(**keys)}"
    return problems("--transport=redis-sortedset", config, *argv)


def test_without_flags_the_defaults_are_those_of_go() -> None:
    settings = sorted_set().settings
    assert settings.worker_pools[0].workers == 64
    assert settings.inference.request_timeout == 300
    assert settings.drain_timeout == 120
    assert settings.gate_wait_timeout == 300
    assert (settings.server.health_port, settings.server.metrics_port) == (8081, 9090)
    assert isinstance(settings.transport, RedisTransport)
    assert settings.transport.result_queue_name == "result-list"
    assert settings.transport.retry_queue_name == "retry-sortedset"


def test_an_explicit_url_beats_the_environment() -> None:
    transport = sorted_set(environ={"REDIS_URL": "redis://env"}).settings.transport
    assert isinstance(transport, RedisTransport)
    assert transport.url == "redis://r"


def test_variables_in_json_are_not_ours() -> None:
    inputs = sorted_set(environ={"X": "x"}, queue={"inference_objective": "${X}"})
    assert inputs.settings.queues[0].inference_objective == "${X}"


@pytest.mark.parametrize(
    "parameters",
    [
        {"labels": {"port": "8000"}, "fallback": 1, "max_count_per_pod": 5},
        {"labels": '{"port": 8000}', "fallback": "1", "max_count_per_pod": "5.0"},
        {"labels": {"port": 8000}, "fallback": 1.0, "max_count_per_pod": 5, "pods_url": ""},
        {"labels": '{"port":"8000"}', "fallback": "1.0", "max_count_per_pod": 5, "baseline": None},
    ],
)
def test_gate_parameters_are_texts_numbers_json_or_objects(parameters: dict[str, Any]) -> None:
    gate = {
        "gate_type": "endpoint-scrape",
        "gate_params": {"url": "http://pod/metrics", "metric": "m", **parameters},
    }
    assert sorted_set(queue=gate).settings.queues[0].gate == EndpointScrapeGate(
        url="http://pod/metrics",
        metric="m",
        labels={"port": "8000"},
        fallback=1.0,
        max_count_per_pod=5.0,
    )


def test_a_budget_gate_is_read_from_texts_and_numbers() -> None:
    parameters = {"pool": "p", "max_concurrency": "40", "baseline": 0.1, "fallback": "0.25"}
    queue = {"gate_type": "prometheus-budget", "gate_params": parameters}
    settings = sorted_set("--prometheus-url=http://p", queue=queue).settings
    assert settings.queues[0].gate == PrometheusBudgetGate(
        pool="p", max_concurrency=40, baseline=0.1, fallback=0.25
    )


def test_gates_over_redis_are_read_from_texts_and_numbers() -> None:
    budget = {"gate_type": "redis", "gate_params": {"address": "r:6379", "budget_key": "k"}}
    rate = {
        "gate_type": "redis-leased-rate",
        "gate_params": {"address": "r:6379", "control_key": "c", "burst_seconds": "0.5"},
    }
    both = {"gate_type": "composite", "gate_params": {"gates": json.dumps([budget, rate])}}
    assert sorted_set(queue=both).settings.queues[0].gate == CompositeGate(
        gates=(
            RedisGate(address="r:6379", budget_key="k"),
            RedisLeasedRateGate(address="r:6379", control_key="c", burst_seconds=0.5),
        )
    )


@pytest.mark.parametrize("limits", [{"team-a": 2, "batch-*": "1"}, '{"team-a": "2", "batch-*": 1}'])
@pytest.mark.parametrize("limit", ["5", 5, 5.0])
def test_a_quota_is_read_from_texts_and_numbers(limit: object, limits: object) -> None:
    quota = {
        "address": "redis:6379",
        "mode": "concurrency",
        "window": "1m30s",
        "limit": limit,
        "limits": limits,
        "gating_mode": "",
    }
    nested = json.dumps([{"gate_type": "redis-quota", "gate_params": quota}])
    queue = {"gate_type": "composite", "gate_params": {"gates": nested}}
    assert sorted_set(queue=queue).settings.queues[0].gate == CompositeGate(
        gates=(
            RedisQuotaGate(
                address="redis:6379",
                mode=QuotaMode.CONCURRENCY,
                window=90,
                limit=5,
                limits={"team-a": 2, "batch-*": 1},
            ),
        )
    )


@pytest.mark.parametrize(
    "parameters",
    [
        {"pool": "p", "threshold": "0.75", "fallback": 1},
        '{"pool": "p", "threshold": 0.75, "fallback": "1.0", "namespace": ""}',
    ],
)
def test_the_saturation_gate_of_a_tier_gate_is_read_from_objects_and_texts(
    parameters: object,
) -> None:
    tiers = {"saturation_gate": "prometheus-saturation", "saturation_gate_params": parameters}
    inner = {"gate_type": "tier-priority-admission", "gate_params": tiers}
    queue = {"gate_type": "wait-on-refuse", "gate_params": {"gate": json.dumps(inner)}}
    gate = sorted_set("--prometheus-url=http://p", queue=queue).settings.queues[0].gate
    assert isinstance(gate, WaitOnRefuseGate)
    assert isinstance(gate.gate, TierPriorityAdmissionGate)
    assert gate.gate.tier_label == "tier"
    assert gate.gate.saturation_gate_params == PrometheusSaturationGate(
        pool="p", threshold=0.75, fallback=1.0
    )


def test_a_pool_without_workers_gets_the_concurrency(tmp_path: Path) -> None:
    pools = tmp_path / "pools.json"
    pools.write_text(
        '[{"id": "default", "workers": 0, "gate_type": "local-max-concurrency", '
        '"gate_params": {"limit": 2}}]'
    )
    (pool,) = sorted_set(f"--pool-config-file={pools}", "--concurrency=7").settings.worker_pools
    assert (pool.workers, pool.gate) == (7, LocalMaxConcurrencyGate(limit=2))


def test_verbosity_is_told_apart() -> None:
    assert sorted_set().verbosity == 2
    for words in (["-v", "4"], ["-v=4"], ["-v4"], ["--v=4"], ["--v", "4"]):
        assert sorted_set(*words).verbosity == 4


@pytest.mark.parametrize(
    ("words", "insecure"),
    [
        (["--tls-insecure-skip-verify"], True),
        (["--tls-insecure-skip-verify=false"], False),
        (["--tls-insecure-skip-verify=T"], True),
        (["--tls-insecure-skip-verify", "false", "--concurrency=1"], False),
        (["--tls-insecure-skip-verify=0", "--tls-insecure-skip-verify"], True),
    ],
)
def test_switches_are_read_as_go_reads_them(words: list[str], insecure: bool) -> None:
    assert sorted_set(*words).settings.inference.tls.insecure is insecure


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--transprt=x"], ["--transprt: unknown flag; did you mean --transport?"]),
        (
            ["--concurrency=many", "--drain-timeout=5", "stray", "--v"],
            [
                "--concurrency: got 'many', must be a whole number",
                "--drain-timeout: got '5', must be a duration of 0 or more, like 30s or 1h30m",
                "run: got 'stray', which belongs to no flag",
                "--v: needs a value",
            ],
        ),
        (["--", "--concurrency=3"], ["run: got '--', which belongs to no flag"]),
        (["-"], ["run: got '-', which belongs to no flag"]),
        (
            ["--tls-insecure-skip-verify=maybe"],
            ["--tls-insecure-skip-verify: got 'maybe', must be true or false"],
        ),
        (
            ["--request-timeout=-5s"],
            ["--request-timeout: got '-5s', must be a duration of 0 or more, like 30s or 1h30m"],
        ),
        (
            ["--transport=redis-sortedset"],
            ["--transport-config: give either --transport-config or --transport-config-file"],
        ),
        (
            ["--transport=redis-sortedset", "--transport-config={}", "--transport-config-file=x"],
            ["--transport-config: give either --transport-config or --transport-config-file"],
        ),
        (
            ["--transport=redis-sortedset", "--transport-config={,}"],
            [
                (
                    "--transport-config:1:2: is not JSON: Expecting property name enclosed in "
                    "double quotes"
                )
            ],
        ),
        (
            ["--transport=redis-sortedset", "--transport-config=[]"],
            ["--transport-config: must be a JSON object"],
        ),
        (
            ["--transport=redis-sortedset", "--transport-config-file=/nowhere.json"],
            ["/nowhere.json: cannot be read: No such file or directory"],
        ),
        (
            ["--transport=redis-sortedset", '--transport-config={"queues": []}'],
            ["transport.queues: must have at least 1 entry"],
        ),
        (
            ["--message-queue-impl=redis-sortedset"],
            [
                (
                    "transport.queues[0].igw_base_url: got '', must be an http:// or https:// URL "
                    "with a host"
                )
            ],
        ),
        (
            ["--redis.ss.igw-base-url=http://gw"],
            [
                (
                    "--message-queue-impl: is required: without it the Go implementation takes "
                    "redis-pubsub, which loses messages and is not supported; add "
                    "--message-queue-impl=redis-sortedset"
                )
            ],
        ),
        (
            ["--transport-config={}"],
            [
                (
                    "--transport: is required: without it the Go implementation takes "
                    "redis-pubsub, which loses messages and is not supported; add "
                    "--transport=redis-sortedset"
                )
            ],
        ),
        ([], ["run: needs --config FILE"]),
        (["-v", "4"], ["run: needs --config FILE"]),
        (
            ["--config=a.yaml", "--concurrency=3", "-v=3"],
            ["--concurrency: cannot be used together with --config: set it in the file"],
        ),
    ],
)
def test_mistakes_name_the_flag_and_the_value(argv: list[str], expected: list[str]) -> None:
    assert problems(*argv) == expected


@pytest.mark.parametrize(
    "argv",
    [
        ["--transport=redis-pubsub", "--transport-config={}"],
        ["--message-queue-impl=redis-pubsub", "--redis.igw-base-url=http://gw"],
    ],
)
def test_the_transport_that_loses_messages_is_refused_with_the_way_out(argv: list[str]) -> None:
    (problem,) = problems(*argv)
    assert problem.startswith("transport.type: redis-pubsub loses messages and is not supported")
    assert "--transport=redis-sortedset" in problem


@pytest.mark.parametrize(
    ("argv", "missing"),
    [
        (["--transport=gcp-pubsub", "--transport-config={}"], "transport.topics"),
        (
            ["--message-queue-impl=gcp-pubsub", "--pubsub.project-id=p1", "--pubsub.batch-size=3"],
            "transport.topics[0].subscriber_id",
        ),
    ],
)
def test_what_pubsub_needs_is_asked_for_by_its_path(argv: list[str], missing: str) -> None:
    paths = [problem.split(": ")[0] for problem in problems(*argv)]
    assert missing in paths
    assert "transport.result_topic_id" in paths


def test_what_this_version_lacks_or_nobody_knows_is_said_with_its_path(tmp_path: Path) -> None:
    policy = tmp_path / "policy.json"
    policy.write_text('{"type": "tier-priority", "parameters": {"lane_objektives": {}}}')
    transforms = tmp_path / "transforms.json"
    transforms.write_text('{"requestTransform": []}')
    quota = {"address": "r:6379", "limit": "100", "share": "true"}
    nested = [{"gate_type": "redis-quota", "gate_params": quota}]
    assert document_problems(
        f"--transform-config-file={transforms}",
        f"--request-merge-policy-config-file={policy}",
        mode="cluster",
        polls=3,
        queue={
            "igw": "x",
            "gate_type": "composite",
            "gate_params": {"gates": json.dumps(nested)},
        },
    ) == [
        "transport.queues[0].gate.gates[0].share: unknown key; did you mean 'shared'?",
        "transport.queues[0].igw: unknown key; did you mean 'igw_base_url'?",
        "transport.mode: is not available in this version",
        "transport.polls: unknown key; known: " + known_transport_keys(),
        "merge_policy.lane_objektives: unknown key; did you mean 'lane_objectives'?",
        "transforms.requestTransform: unknown key; did you mean 'request'?",
    ]


def known_transport_keys() -> str:
    return ", ".join(sorted(RedisTransport.model_fields))


def test_a_gate_type_that_go_would_take_for_open_is_an_error() -> None:
    assert document_problems(queue={"gate_type": "prometeus-query"}) == [
        (
            "transport.queues[0].gate.type: unknown type 'prometeus-query'; did you mean "
            "'prometheus-query'?"
        )
    ]


def test_no_secret_of_a_document_stands_in_an_error() -> None:
    found = document_problems(url="http://u:hunter2@r", queue={"igw_base_url": "x://u:hunter2@g"})
    assert len(found) == 2
    assert "hunter2" not in "".join(found)


def test_our_own_file_is_read_too(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "transport: {queues: [{queue_name: q, igw_base_url: '${GW}'}]}\ndrain_timeout: 1s\n"
    )
    for argv in (["--config", str(config)], [f"--config={config}", "-v=5"]):
        inputs = run(*argv, GW="http://gw")
        assert inputs.settings.queues[0].igw_base_url == "http://gw"
        assert [note.split(":")[0] for note in inputs.notes] == ["drain_timeout"]


def test_run_says_that_old_flags_are_old_and_migrating_does_not() -> None:
    argv = ["--message-queue-impl=redis-sortedset", "--redis.ss.igw-base-url=http://gw"]
    (note,) = [note for note in run(*argv).notes if "deprecated" in note]
    assert note == (
        "--message-queue-impl, --redis.ss.igw-base-url: deprecated, still obeyed; "
        "`async-processor config migrate` prints the YAML for it"
    )
    assert migrate(argv, {}).notes == ()


def test_a_password_on_the_command_line_is_warned_about_and_not_repeated() -> None:
    exposed = sorted_set(url="redis://:hunter2@broker:6379/0").notes
    assert [note for note in exposed if "--transport-config: holds a password" in note]
    assert "hunter2" not in str(exposed)
    assert not [note for note in sorted_set(url="redis://broker").notes if "password" in note]


def test_migrating_says_what_becomes_of_the_verbosity() -> None:
    argv = ["--message-queue-impl=redis-sortedset", "--redis.ss.igw-base-url=http://gw", "-v=4"]
    assert migrate(argv, {}).notes == ("-v=4 is not in the file: give it to run, beside --config",)


def test_migrating_needs_something_to_migrate() -> None:
    for argv in ([], ["-v", "4"], ["--config=x.yaml"]):
        with pytest.raises(ConfigurationError, match="needs the flags of the Go implementation"):
            migrate(argv, {})


def test_a_zero_of_a_gate_is_a_zero_and_gos_default_admission_is_off() -> None:
    parameters = {"pool": "p", "baseline": 0, "max_concurrency": 10}
    assert go_documents.gate("prometheus-budget", parameters) == {
        "type": "prometheus-budget",
        **parameters,
    }
    scrape = EndpointScrapeGate.model_validate(
        {"url": "http://x/metrics", "metric": "m", "admission": "budget"}
    )
    assert scrape.admission is ScrapeAdmission.OFF


def test_three_generations_of_the_same_deployment_mean_the_same(tmp_path: Path) -> None:
    generations = [path for path in CASES if path.stem.startswith("multitenant_")]
    assert len(generations) == 3
    settings = []
    for path in generations:
        case = Case(path, tmp_path)
        settings.append(settings_from(case.argv, case.environ).settings)
        printed = tmp_path / "migrated.yaml"
        printed.write_text(migrate(case.argv, case.environ).yaml)
        assert load(printed, case.environ) == settings[-1]
    assert settings[0] == settings[1] == settings[2]


OF_THE_CONTRACT = """
transport transport-config transport-config-file concurrency pool-config-file
request-merge-policy-config-file transform-config-file prometheus-url prometheus-cache-ttl
request-timeout drain-timeout gate-wait-timeout transport-config-watch-interval
metrics-backlog-poll-interval metrics-endpoint-auth health-port metrics-port tls-ca-cert tls-cert
tls-key tls-insecure-skip-verify v zap-devel zap-encoder zap-log-level zap-stacktrace-level
zap-time-encoding message-queue-impl redis.url redis.addr redis.igw-base-url redis.request-path-url
redis.inference-objective redis.request-queue-name redis.retry-queue-name redis.result-queue-name
redis.queues-config redis.queues-config-file redis.ss.addr redis.ss.igw-base-url
redis.ss.request-path-url redis.ss.inference-objective redis.ss.request-queue-name
redis.ss.result-queue-name redis.ss.queues-config redis.ss.queues-config-file redis.ss.gate-type
redis.ss.gate-params redis.ss.poll-interval-ms redis.ss.batch-size pubsub.project-id
pubsub.igw-base-url pubsub.request-path-url pubsub.inference-objective pubsub.request-subscriber-id
pubsub.result-topic-id pubsub.batch-size pubsub.topics-config-file redis-tracing
request-merge-policy request-merge-policy-config
"""
OF_A_KIND: Mapping[go_flags.Kind, tuple[str, object]] = {
    go_flags.Kind.TEXT: ("text", "text"),
    go_flags.Kind.WHOLE: ("3", 3),
    go_flags.Kind.SWITCH: ("false", False),
    go_flags.Kind.DURATION: ("1h30m", "1h30m"),
}


@pytest.mark.parametrize("flag", OF_THE_CONTRACT.split())
def test_a_flag_is_read_in_every_way_that_go_reads_it(flag: str) -> None:
    text, value = OF_A_KIND[go_flags.FLAGS[flag]]
    for words in (
        [f"--{flag}={text}"],
        [f"-{flag}={text}"],
        [f"--{flag}", text],
        [f"-{flag}", text],
    ):
        assert go_flags.parse([*words, "--concurrency=2"]) == {"concurrency": 2, flag: value} | (
            {"concurrency": 2} if flag == "concurrency" else {}
        )


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        (
            {"gate": '{"gate_type": "redis-quota", "gate_params": {"limit": 1}'},
            (
                """gate.gate: got '{"gate_type": "redis-quota", "gate_params": {"limit": 1}', """
                "must be a mapping of keys to values; as JSON it is broken at line 1, column 57: "
                "Expecting ',' delimiter"
            ),
        ),
        (
            {"gate": '{"gate_type": "redis-quota",\n "gate_params": {"limit": 0}}'},
            "gate.gate.limit: got 0, must be 1 or more",
        ),
        (
            {"gate": '{"gate_type": "redis-quotas", "gate_params": {"limit": 1}}'},
            "gate.gate.type: unknown type 'redis-quotas'; did you mean 'redis-quota'?",
        ),
        (
            {"gate": {"gate_type": "redis-quota", "gate_params": {"limit": 1, "limits": "{a: 1}"}}},
            (
                "gate.gate.limits: got '{a: 1}', must be a mapping of names to values; as JSON it "
                "is broken at line 1, column 2: Expecting property name enclosed in double quotes"
            ),
        ),
    ],
)
def test_a_mistake_in_an_inner_gate_says_where_it_is(
    parameters: dict[str, Any], expected: str
) -> None:
    queue = {"gate_type": "wait-on-refuse", "gate_params": parameters}
    assert document_problems(queue=queue) == [f"transport.queues[0].{expected}"]


def test_what_is_nested_without_end_is_told_in_a_line() -> None:
    deep = "[" * 100_000
    assert problems("--transport=redis-sortedset", f"--transport-config={deep}") == [
        "--transport-config: is nested too deeply, or has a number that is too long"
    ]
    queue = {"gate_type": "wait-on-refuse", "gate_params": {"gate": deep}}
    (problem,) = document_problems(queue=queue)
    assert problem.startswith("transport.queues[0].gate.gate: got '[[[")
    assert problem.endswith("as JSON it is nested too deeply, or has a number that is too long")


def test_transforms_are_taken_over(tmp_path: Path) -> None:
    file = tmp_path / "transforms.json"
    entry = {
        "name": "whisper-multipart",
        "type": "gcs_uri_multipart",
        "parameters": {"providers": ["whisper"]},
    }
    file.write_text(json.dumps({"requestTransforms": [entry]}))
    transforms = sorted_set(f"--transform-config-file={file}").settings.transforms
    assert transforms.request == (
        GcsUriMultipartTransform(
            type="gcs_uri_multipart", name="whisper-multipart", providers=("whisper",)
        ),
    )
    assert transforms.response == ()


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("[]", "--transform-config-file: must be a JSON object"),
        ('{"requestTransforms": {"a": 1}}', "transforms.request: got a mapping, must be a list"),
        (
            '{"requestTransforms": [{"type": "gcs_uri_multipart", "parameters": {"a": []}}]}',
            "transforms.request[0].providers: is required",
        ),
        (
            '{"requestTransforms": [{"type": "whisper"}]}',
            "transforms.request[0].type: unknown type 'whisper'; known: gcs_uri_multipart, plugin",
        ),
    ],
)
def test_a_mistake_in_transforms_is_said_with_its_path(
    written: str, problem: str, tmp_path: Path
) -> None:
    file = tmp_path / "transforms.json"
    file.write_text(written)
    assert problem in document_problems(f"--transform-config-file={file}")
