"""What replicas are scaled by: a backlog that counts once, whoever reads it, and only while it can
be read; and what is due soon."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from async_processor.telemetry.series import PREFIX
from async_processor.testing.kubernetes import Helm

CHART: Final = Path(__file__).parents[2] / "charts" / "async-processor"
COMMON: Final[dict[str, Any]] = {
    "broker": {"existingSecret": "redis-url"},
    "config": {
        "prometheus": {"url": "http://prometheus"},
        "transport": {"queues": [{"igw_base_url": "http://gateway"}]},
    },
}
NAMESPACE: Final = 'namespace="llm"'
SCRAPED: Final[dict[str, Any]] = {"podMonitor": {"enabled": True}}
OF_THE_ADAPTER: Final[dict[str, dict[str, Any]]] = {
    rule["name"]["as"]: rule
    for rule in yaml.safe_load((CHART / "files" / "prometheus-adapter.yaml").read_text())["rules"][
        "external"
    ]
}


def objects(helm: Helm, kind: str, **values: Any) -> dict[str, Any]:
    (found,) = [each for each in helm.template(COMMON | values) if each["kind"] == kind]
    return found


def scaled_by(helm: Helm, **values: Any) -> dict[str, dict[str, Any]]:
    spec = objects(helm, "HorizontalPodAutoscaler", hpa={"enabled": True}, **values)["spec"]
    return {each["external"]["metric"]["name"]: each["external"] for each in spec["metrics"]}


def test_the_autoscaler_scales_by_what_the_adapter_serves(helm: Helm) -> None:
    metrics = scaled_by(helm)
    assert metrics.keys() == OF_THE_ADAPTER.keys()
    targets = {name: each["target"]["averageValue"] for name, each in metrics.items()}
    assert targets == {"async_processor_backlog": "200", "async_processor_urgent_requests": "50"}
    for each in metrics.values():
        assert each["metric"]["selector"] == {"matchLabels": {"namespace": "llm"}}


def adapters_queries(helm: Helm, **values: Any) -> list[str]:
    """As the adapter asks when the autoscaler does."""
    metrics = scaled_by(helm, **values)
    return [
        rule["metricsQuery"]
        .replace("<<.Series>>", rule["seriesQuery"].partition("{")[0])
        .replace("<<.LabelMatchers>>", matchers(metrics[name]["metric"]["selector"]["matchLabels"]))
        for name, rule in OF_THE_ADAPTER.items()
    ]


def matchers(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{value}"' for name, value in labels.items())


def kedas_queries(helm: Helm, **values: Any) -> list[str]:
    spec = objects(helm, "ScaledObject", keda={"enabled": True}, **values)["spec"]
    return [trigger["metadata"]["query"] for trigger in spec["triggers"]]


QUERIES: Final[Mapping[str, Callable[..., list[str]]]] = {
    "hpa": adapters_queries,
    "keda": kedas_queries,
}


def read_by(
    replica: str, *, queue: str = "q", backlog: int, readable: int = 1, release: str = ""
) -> dict[str, int]:
    """What a replica says of a queue of which a tenth is urgent."""
    labels = f'{NAMESPACE}, instance="{replica}", queue_id="{queue}"'
    if release:
        labels += f', app_kubernetes_io_instance="{release}"'
    urgent = f'{PREFIX}deadline_proximity_millis_bucket{{{labels}, le="%s"}}'
    return {
        f"{PREFIX}broker_backlog{{{labels}}}": backlog,
        f"{PREFIX}broker_backlog_source_available{{{labels}}}": readable,
        urgent % "300000": backlog // 10,
        urgent % "600000": backlog,
    }


READ_TWICE: Final = (
    read_by("one", backlog=400)
    | read_by("two", backlog=400)
    | read_by("one", queue="other", backlog=50)
)
"""By two replicas; a second queue by one of them."""


@pytest.mark.parametrize("whose", ["hpa", "keda"])
@pytest.mark.parametrize(
    ("series", "backlog", "urgent"),
    [
        (READ_TWICE, [450], [45]),
        (read_by("one", backlog=400, readable=0), [], [40]),
        (read_by("one", backlog=400, readable=0) | read_by("two", backlog=90), [90], [40]),
    ],
    ids=["read by two replicas", "not readable", "readable by one"],
)
def test_a_backlog_counts_once_and_only_while_it_can_be_read(
    helm: Helm,
    promtool: str,
    tmp_path: Path,
    whose: str,
    series: Mapping[str, int],
    backlog: list[int],
    urgent: list[int],
) -> None:
    answer(promtool, tmp_path, QUERIES[whose](helm), series, (backlog, urgent))


def answer(
    promtool: str,
    folder: Path,
    queries: Sequence[str],
    series: Mapping[str, int],
    figures: Sequence[list[int]],
) -> None:
    """Assert that they do, each with its figures."""
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": str(value)} for name, value in series.items()],
        "promql_expr_test": [
            {"expr": query, "exp_samples": [{"labels": "{}", "value": value} for value in values]}
            for query, values in zip(queries, figures, strict=True)
        ],
    }
    file = folder / "autoscaling.json"
    file.write_text(json.dumps({"rule_files": [], "tests": [test]}))
    done = subprocess.run(
        [promtool, "test", "rules", str(file)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("whose", QUERIES)
def test_another_release_in_the_namespace_counts_apart(
    helm: Helm, promtool: str, tmp_path: Path, whose: str
) -> None:
    """Its queue may even be called the same, on another broker."""
    series = (
        read_by("one", backlog=400, release="rel")
        | read_by("two", backlog=900, release="other")
        | read_by("two", queue="its own", backlog=50, release="other")
    )
    answer(promtool, tmp_path, QUERIES[whose](helm, **SCRAPED), series, ([400], [40]))


def test_the_pod_monitor_says_whose_the_series_are(helm: Helm) -> None:
    label = "app.kubernetes.io/instance"
    assert objects(helm, "PodMonitor", **SCRAPED)["spec"]["podTargetLabels"] == [label]
    pod = objects(helm, "Deployment", **SCRAPED)["spec"]["template"]
    assert pod["metadata"]["labels"][label] == "rel"
