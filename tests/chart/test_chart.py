"""What the chart makes of its values: legal objects, a configuration that the daemon takes, and
sentences for what cannot work."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml

from async_processor.config.load import load_text
from async_processor.daemon.rereading import NEEDS_RESTART
from async_processor.testing.daemons import DaemonProcess
from async_processor.testing.kubernetes import Helm, KubernetesSchemas
from async_processor.testing.servers import RedisServer

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "async-processor"
SETS = {file.stem: file for file in sorted((Path(__file__).parent / "value_sets").glob("*.yaml"))}
ENVIRONMENT = {"INFERENCE_API_KEY": "key", "METRICS_TOKEN": "token"}
GATEWAY: dict[str, Any] = {"transport": {"queues": [{"igw_base_url": "http://gateway"}]}}
BROKER = {"existingSecret": "redis-url"}
OF_THE_RELEASE = 'app_kubernetes_io_instance="rel", namespace="llm"'
"""What tells its series from others, where the PodMonitor is on."""

Objects = list[dict[str, Any]]


def values(name: str) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load(SETS[name].read_text())
    return read


def one(objects: Objects, kind: str) -> dict[str, Any]:
    (found,) = [each for each in objects if each["kind"] == kind]
    return found


def pod(objects: Objects) -> dict[str, Any]:
    spec: dict[str, Any] = one(objects, "Deployment")["spec"]["template"]["spec"]
    return spec


def container(objects: Objects) -> dict[str, Any]:
    first: dict[str, Any] = pod(objects)["containers"][0]
    return first


def configuration(objects: Objects) -> str:
    (found,) = [each for each in objects if "config.yaml" in each.get("data", {})]
    return str(found["data"]["config.yaml"])


@pytest.mark.parametrize("name", SETS)
def test_every_object_is_legal_and_the_daemon_takes_the_configuration(
    helm: Helm, schemas: KubernetesSchemas, name: str
) -> None:
    helm.lint(values(name))
    objects = helm.template(values(name))
    assert schemas.mistakes(objects) == []
    assert yaml.safe_load(configuration(objects)) == values(name)["config"]
    load_text(configuration(objects), ENVIRONMENT, name=name)


def test_a_field_that_nobody_knows_is_a_mistake(helm: Helm, schemas: KubernetesSchemas) -> None:
    objects = helm.template(values("observed"))
    for each in objects:
        for section in each, each.get("spec", each):
            section["nonsense"] = True
    wrong = schemas.mistakes(objects)
    assert len(wrong) >= len(objects) * 3
    assert all("nonsense" in each for each in wrong)


def test_the_schema_of_the_values_is_in_step_with_the_daemon() -> None:
    expected = runpy.run_path(str(ROOT / "charts" / "values_schema.py"))["text"]()
    in_step = expected == (CHART / "values.schema.json").read_text()
    assert in_step, "run: .venv/bin/python charts/values_schema.py"


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert f'\nversion = "{chart["appVersion"]}"' in (ROOT / "pyproject.toml").read_text()


async def test_the_daemon_runs_with_the_rendered_configuration(
    helm: Helm, redis_server: RedisServer, tmp_path: Path
) -> None:
    objects = helm.template(values("multi_tenant"))
    daemon = DaemonProcess({}, tmp_path / "daemon")
    settings = yaml.safe_load(configuration(objects))
    daemon.configure(settings)
    names = [entry["name"] for entry in container(objects)["env"]]
    assert names == ["REDIS_URL", "INFERENCE_API_KEY"]
    await daemon.start(environment={"REDIS_URL": redis_server.url, "INFERENCE_API_KEY": "key"})
    status = await daemon.status()
    assert [queue["queue_name"] for queue in status["queues"]] == ["red", "green"]
    assert await daemon.terminate() == 0


def _gated(gate: dict[str, Any]) -> dict[str, Any]:
    return {"transport": {"queues": [{"igw_base_url": "http://gw", "gate": gate}]}}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"broker": BROKER, "config": {}}, "config.transport.queues is empty"),
        (
            {"broker": BROKER, "config": {"transport": {"queues": [{"igw_base_url": ""}]}}},
            "has no igw_base_url: set it to the URL of the inference gateway",
        ),
        (
            {"broker": BROKER, "config": {"transport": {"queues": [{"queue_name": "q"}]}}},
            "(q) has no igw_base_url: set it to the URL of the inference gateway",
        ),
        (
            {"broker": BROKER, "config": {"transport": {"queues": [{"igw_base_url": "gateway"}]}}},
            'has the igw_base_url "gateway": it must begin with http:// or https://',
        ),
        (
            {"broker": BROKER, "config": _gated({"type": "vlm-pool"})},
            "gate/type': value must be one of 'composite', 'constant'",
        ),
        (
            {"broker": BROKER, "config": _gated({"type": "vllm-pool", "max_kv_cache": 85})},
            "max_kv_cache': maximum: got 85, want 1",
        ),
        ({"config": GATEWAY}, "there is no broker: set broker.existingSecret"),
        (
            {"broker": BROKER | {"url": "redis://r"}, "config": GATEWAY},
            "broker.url and broker.existingSecret are both set",
        ),
        (
            {
                "broker": BROKER,
                "config": GATEWAY,
                "inference": {"apiKey": "k", "existingSecret": "s"},
            },
            "inference.apiKey and inference.existingSecret are both set",
        ),
        (
            {
                "broker": BROKER,
                "config": GATEWAY,
                "hpa": {"enabled": True},
                "keda": {"enabled": True},
            },
            "hpa.enabled and keda.enabled are both set",
        ),
        (
            {"broker": BROKER, "config": GATEWAY, "keda": {"enabled": True}},
            "keda needs a Prometheus",
        ),
        (
            {"broker": BROKER, "config": GATEWAY | {"drain_timeout": "${DRAIN:-2m}"}},
            "set terminationGracePeriodSeconds to 15 s more",
        ),
        ({"broker": BROKER, "config": GATEWAY, "replica": 3}, "'replica' not allowed"),
        ({"broker": BROKER, "config": GATEWAY | {"sever": {}}}, "'sever' not allowed"),
        (
            {
                "broker": BROKER,
                "config": GATEWAY,
                "prometheusRule": {"overrides": {"HighRetryRate": {"threshold": 1}}},
            },
            "invalid propertyName 'HighRetryRate'",
        ),
    ],
)
def test_what_cannot_work_is_refused_with_a_sentence(
    helm: Helm, changes: dict[str, Any], sentence: str
) -> None:
    assert sentence in helm.refusal(changes)


@pytest.mark.parametrize(
    ("drain", "seconds"),
    [(None, 135), ("90s", 105), (25, 40), ("1h30m", 5415), ("500ms", 16), ("90", 105)],
)
def test_the_grace_period_follows_the_drain(
    helm: Helm, drain: str | int | None, seconds: int
) -> None:
    config = GATEWAY if drain is None else GATEWAY | {"drain_timeout": drain}
    objects = helm.template({"broker": BROKER, "config": config})
    assert pod(objects)["terminationGracePeriodSeconds"] == seconds


@pytest.mark.parametrize(
    ("processes", "seconds"), [(1, 135), ("1", 135), (4, 140), ("auto", 140), ("${N:-1}", 140)]
)
def test_a_supervisor_gets_time_to_end_what_hangs(
    helm: Helm, processes: int | str, seconds: int
) -> None:
    config = GATEWAY | {"processes": processes}
    objects = helm.template({"broker": BROKER, "config": config})
    assert pod(objects)["terminationGracePeriodSeconds"] == seconds


def test_the_pod_is_locked_down_and_probed(helm: Helm) -> None:
    objects = helm.template(values("observed"))
    security = container(objects)["securityContext"]
    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert pod(objects)["securityContext"]["runAsNonRoot"] is True
    assert pod(objects)["automountServiceAccountToken"] is False
    assert {port["name"]: port["containerPort"] for port in container(objects)["ports"]} == {
        "metrics": 19090,
        "health": 18081,
    }
    paths = [container(objects)[f"{kind}Probe"]["httpGet"] for kind in ("liveness", "readiness")]
    assert paths == [{"path": f"/{page}", "port": "health"} for page in ("healthz", "readyz")]


def test_secrets_of_the_chart_reach_the_pod_and_only_as_secrets(helm: Helm) -> None:
    objects = helm.template(values("secrets_of_the_chart"))
    secret = one(objects, "Secret")
    assert secret["stringData"] == {"url": "rediss://:hush@redis:6380/0", "api-key": "hush-too"}
    assert {entry["name"]: entry["valueFrom"] for entry in container(objects)["env"]} == {
        "REDIS_URL": {"secretKeyRef": {"name": "rel-async-processor", "key": "url"}},
        "INFERENCE_API_KEY": {"secretKeyRef": {"name": "rel-async-processor", "key": "api-key"}},
    }
    rest = json.dumps([each for each in objects if each is not secret])
    assert "hush" not in rest


def _checksums(objects: Objects) -> dict[str, str]:
    annotations: dict[str, str] = one(objects, "Deployment")["spec"]["template"]["metadata"][
        "annotations"
    ]
    return {key: value for key, value in annotations.items() if key.startswith("checksum/")}


@pytest.mark.parametrize(("way", "replaced"), [("hot", False), ("rollout", True)])
def test_a_changed_configuration_replaces_pods_only_when_asked_to(
    helm: Helm, way: str, replaced: bool
) -> None:
    before = {"broker": BROKER, "config": GATEWAY, "configReload": way}
    after = before | {"config": GATEWAY | {"gate_wait_timeout": "1m"}}
    same = _checksums(helm.template(before)) == _checksums(helm.template(after))
    assert same is not replaced


def test_the_chart_knows_what_only_a_restart_can_change() -> None:
    known = (CHART / "files" / "needs-restart.txt").read_text().splitlines()
    assert known == list(NEEDS_RESTART)


@pytest.mark.parametrize(
    "change",
    [{"processes": 2}, {"transport": GATEWAY["transport"] | {"lease_ttl": "30s"}}],
    ids=["at the top", "within a section"],
)
def test_what_only_a_restart_can_change_replaces_pods(helm: Helm, change: dict[str, Any]) -> None:
    before, after = (
        _checksums(helm.template({"broker": BROKER, "config": config}))
        for config in (GATEWAY, GATEWAY | change)
    )
    assert before != after


@pytest.mark.parametrize("shared", [True, False])
def test_where_gates_are_shared_another_first_queue_replaces_pods(helm: Helm, shared: bool) -> None:
    """By its name the replicas find each other."""
    before, after = (_gated({"type": "redis", "shared": shared}) for _ in range(2))
    after["transport"]["queues"].insert(0, {"queue_name": "new", "igw_base_url": "http://gw"})
    one_way, other = (
        _checksums(helm.template({"broker": BROKER, "config": each})) for each in (before, after)
    )
    assert (one_way != other) is shared


def test_a_changed_secret_always_replaces_pods(helm: Helm) -> None:
    before, after = (
        _checksums(helm.template({"broker": {"url": url}, "config": GATEWAY}))
        for url in ("redis://one", "redis://two")
    )
    assert before != after


def test_the_configuration_is_mounted_as_a_folder_so_that_it_can_change(helm: Helm) -> None:
    objects = helm.template(values("minimal"))
    (mount,) = container(objects)["volumeMounts"]
    assert "subPath" not in mount
    assert container(objects)["args"][2] == f"{mount['mountPath']}/config.yaml"


def test_replicas_are_left_to_whoever_scales(helm: Helm) -> None:
    assert one(helm.template(values("multi_tenant")), "Deployment")["spec"]["replicas"] == 3
    assert "replicas" not in one(helm.template(values("keda")), "Deployment")["spec"]


def test_keda_scales_by_a_backlog_that_can_be_read_and_by_deadlines(helm: Helm) -> None:
    spec = one(helm.template(values("keda")), "ScaledObject")["spec"]
    backlog, urgent = [trigger["metadata"]["query"] for trigger in spec["triggers"]]
    matchers = 'namespace="llm", job="llm/rel"'
    assert f"broker_backlog_source_available{{{matchers}}} == 1" in backlog
    assert f'deadline_proximity_millis_bucket{{{matchers}, le=~"1.8e\\\\+06(\\\\.0)?"}}' in urgent
    assert {trigger["metadata"]["ignoreNullValues"] for trigger in spec["triggers"]} == {"false"}


def test_only_metrics_and_health_are_reachable_and_only_from_where_it_is_said(helm: Helm) -> None:
    spec = one(helm.template(values("locked_down")), "NetworkPolicy")["spec"]
    labels = one(helm.template(values("locked_down")), "Deployment")["spec"]["selector"]
    assert spec["podSelector"] == labels
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    (ingress,) = spec["ingress"]
    assert [port["port"] for port in ingress["ports"]] == ["metrics", "health"]
    assert ingress["from"] == values("locked_down")["networkPolicy"]["ingressFrom"]
    assert spec["egress"] == values("locked_down")["networkPolicy"]["egress"]


def test_without_rules_for_it_nothing_that_goes_out_is_forbidden(helm: Helm) -> None:
    opened = {"broker": BROKER, "config": GATEWAY, "networkPolicy": {"enabled": True}}
    spec = one(helm.template(opened), "NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress"]
    assert "from" not in spec["ingress"][0]


def test_the_pool_label_of_model_servers_is_theirs_else_the_given_one(helm: Helm) -> None:
    objects = helm.template(values("observed"))
    (monitor,) = [
        each
        for each in objects
        if each["kind"] == "PodMonitor" and each["metadata"]["name"].endswith("-modelserver")
    ]
    fallback, own = monitor["spec"]["podMetricsEndpoints"][0]["relabelings"]
    assert fallback == {"targetLabel": "inference_pool", "replacement": "llama"}
    assert own["sourceLabels"] == ["__meta_kubernetes_pod_label_inference_pool"]
    assert own["regex"] == "(.+)"
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": ["models"]}


def test_alerts_are_those_of_the_file_with_the_changes_of_the_values(helm: Helm) -> None:
    source = (CHART / "files" / "alerts.yaml").read_text().replace('job=~".+"', OF_THE_RELEASE)
    before = [rule for group in yaml.safe_load(source)["groups"] for rule in group["rules"]]
    groups = one(helm.template(values("observed")), "PrometheusRule")["spec"]["groups"]
    after = {rule["alert"]: rule for group in groups for rule in group["rules"]}
    for rule in before:
        rule["annotations"]["runbook_url"] = (
            "https://git.example/async-processor/blob/main/" + rule["annotations"]["runbook_url"]
        )
    expected = {rule["alert"]: rule for rule in before if rule["alert"] != "AsyncProcessorPoison"}
    changed = expected["AsyncProcessorHighRetryRate"]
    changed["expr"] = changed["expr"].removesuffix("0.5") + "0.75"
    changed |= {"for": "30m", "labels": {"severity": "critical"}}
    assert after == expected


def test_the_dashboard_arrives_as_it_is(helm: Helm) -> None:
    objects = helm.template(values("observed"))
    (found,) = [each for each in objects if each["metadata"]["name"].endswith("-dashboard")]
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    shipped = (CHART / "files" / "dashboard.json").read_text()
    assert json.loads(found["data"]["async-processor.json"]) == json.loads(shipped)


def test_the_notes_say_what_was_installed_and_how_to_send_a_request(helm: Helm) -> None:
    notes = helm.notes(values("multi_tenant"))
    assert "red -> http://gw, gate redis-quota" in notes
    assert "exec -i deploy/rel-async-processor" in notes
    assert "--queue red --deadline 10m --wait" in notes


def test_the_notes_warn_of_a_process_for_every_core_of_a_node(helm: Helm) -> None:
    settings = {"broker": BROKER, "config": GATEWAY | {"processes": "auto"}}
    assert "WARNING: config.processes is auto" in helm.notes(settings)
    settings["resources"] = {"limits": {"cpu": 2}}
    assert "WARNING" not in helm.notes(settings)


@pytest.mark.parametrize("scaler", ["hpa", "keda"])
def test_the_notes_say_what_a_scaler_needs(helm: Helm, scaler: str) -> None:
    settings = values(scaler) | {"podMonitor": {"enabled": False}}
    needed = "The autoscaler needs the metrics in Prometheus"
    assert needed in helm.notes(settings)
    assert needed not in helm.notes(settings | {"podMonitor": {"enabled": True}})


def test_the_notes_say_how_to_publish_a_first_request(helm: Helm) -> None:
    """Without --wait, for which the pod would need the right to make a subscription."""
    notes = helm.notes(values("pubsub"))
    assert "A first request; its result goes to async-results:" in notes
    assert "--queue async-requests-sub --deadline 10m\n" in notes


def test_the_notes_warn_of_gates_that_each_replica_would_use_whole(helm: Helm) -> None:
    """A quota counts over all replicas by itself."""
    settings = values("multi_tenant")
    assert "WARNING" not in helm.notes(settings)
    settings["config"]["worker_pools"][0]["gate"]["shared"] = False
    del settings["config"]["transport"]["queues"][1]["queue_name"]
    settings["config"]["transport"]["queues"][1]["gate"] = {
        "type": "vllm-pool",
        "urls": ["http://v"],
    }
    notes = helm.notes(settings)
    assert "replicas, and the gate of queue request-sortedset is not `shared: true`" in notes
    assert "replicas, and the gate of pool default is not `shared: true`" in notes
    assert notes.count("WARNING") == 2
