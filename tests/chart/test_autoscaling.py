"""What replicas are scaled by: a backlog that counts once, whoever reads it, and only while it can
be read; and what is due soon."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
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
OF_THE_ADAPTER: Final[dict[str, dict[str, Any]]] = {
    rule["name"]["as"]: rule
    for rule in yaml.safe_load((CHART / "files" / "prometheus-adapter.yaml").read_text())["rules"][
        "external"
    ]
}


def objects(helm: Helm, kind: str, **values: Any) -> dict[str, Any]:
    (found,) = [each for each in helm.template(COMMON | values) if each["kind"] == kind]
    return found


def scaled_by(helm: Helm) -> dict[str, dict[str, Any]]:
    spec = objects(helm, "HorizontalPodAutoscaler", hpa={"enabled": True})["spec"]
    return {each["external"]["metric"]["name"]: each["external"] for each in spec["metrics"]}


def test_the_autoscaler_scales_by_what_the_adapter_serves(helm: Helm) -> None:
    metrics = scaled_by(helm)
    assert metrics.keys() == OF_THE_ADAPTER.keys()
    targets = {name: each["target"]["averageValue"] for name, each in metrics.items()}
    assert targets == {"async_processor_backlog": "200", "async_processor_urgent_requests": "50"}
    for each in metrics.values():
        assert each["metric"]["selector"] == {"matchLabels": {"namespace": "llm"}}


def adapters_queries() -> list[str]:
    """As the adapter asks for the namespace `llm`."""
    return [
        rule["metricsQuery"]
        .replace("<<.Series>>", rule["seriesQuery"].partition("{")[0])
        .replace("<<.LabelMatchers>>", NAMESPACE)
        for rule in OF_THE_ADAPTER.values()
    ]


def kedas_queries(helm: Helm) -> list[str]:
    spec = objects(helm, "ScaledObject", keda={"enabled": True})["spec"]
    return [trigger["metadata"]["query"] for trigger in spec["triggers"]]


def read_by(replica: str, *, queue: str = "q", backlog: int, readable: int = 1) -> dict[str, int]:
    """What a replica says of a queue of which a tenth is urgent."""
    labels = f'{NAMESPACE}, instance="{replica}", queue_id="{queue}"'
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
    queries = adapters_queries() if whose == "hpa" else kedas_queries(helm)
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": str(value)} for name, value in series.items()],
        "promql_expr_test": [
            {"expr": query, "exp_samples": [{"labels": "{}", "value": value} for value in values]}
            for query, values in zip(queries, (backlog, urgent), strict=True)
        ],
    }
    file = tmp_path / "autoscaling.json"
    file.write_text(json.dumps({"rule_files": [], "tests": [test]}))
    done = subprocess.run(
        [promtool, "test", "rules", str(file)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
