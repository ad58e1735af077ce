"""Every alert fires when it should, says what it should, and stays quiet otherwise."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from async_processor.telemetry.metrics import Metrics
from async_processor.telemetry.series import PREFIX

HERE = Path(__file__).parent
RULES = HERE.parents[1] / "charts" / "async-processor" / "files" / "alerts.yaml"
ALERTS: Final = {
    rule["alert"]: rule
    for group in yaml.safe_load(RULES.read_text())["groups"]
    for rule in group["rules"]
}
CASES: Final = yaml.safe_load((HERE / "alert_cases.yaml").read_text())

POOL: Final = {"namespace": "llm", "pool_name": "p"}
QUEUE: Final = POOL | {"queue_id": "q", "queue_name": "q"}
PROCESS: Final = {"namespace": "llm", "pod": "one", "instance": "one:9090"}
ABOUT: Final[Mapping[str, Mapping[str, str]]] = {"queue": QUEUE, "pool": POOL, "process": PROCESS}
LABELS_OF: Final = {
    "pool_worker_limit": POOL,
    "settle_pending": {},
    "queue_config_reloads_total": {},
}


def test_every_alert_has_its_cases() -> None:
    assert list(CASES) == list(ALERTS)


def test_every_alert_has_a_runbook_and_ends_with_its_threshold() -> None:
    for name, rule in ALERTS.items():
        assert rule["annotations"]["runbook_url"] == f"docs/operations.md#{name.lower()}"
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert re.search(r"(<|<=|>|>=|==) [0-9.]+$", rule["expr"]), name


def test_every_metric_that_is_asked_for_exists() -> None:
    metrics = Metrics()
    metrics.queue("q", "q", "p")
    metrics.pool("p")
    declared = set(re.findall(r"^# TYPE (\S+)", metrics.exposition().decode(), re.MULTILINE))
    asked = {
        name.removesuffix("_bucket")
        for rule in ALERTS.values()
        for name in re.findall(rf"{PREFIX}\w+", rule["expr"])
    }
    assert asked <= declared


def test_promtool_takes_the_rules(promtool: str) -> None:
    assert "15 rules found" in _promtool(promtool, "check", "rules", str(RULES))


def test_every_alert_fires_and_stays_quiet(promtool: str, tmp_path: Path) -> None:
    files = [_file_of_tests(tmp_path, name, case) for name, case in CASES.items()]
    _promtool(promtool, "test", "rules", *map(str, files))


def _file_of_tests(folder: Path, alert: str, case: Mapping[str, Any]) -> Path:
    """All cases of one alert, beside a file with its rule alone: promtool evaluates every rule."""
    rules = folder / f"{alert}.rules.json"
    rules.write_text(json.dumps({"groups": [{"name": alert, "rules": [ALERTS[alert]]}]}))
    tests = [_test(alert, case, "fires", case["fires"], [_expected(alert, case)])]
    tests += [_test(alert, case, why, series, []) for why, series in case["quiet"].items()]
    file = folder / f"{alert}.tests.json"
    whole = {"rule_files": [rules.name], "evaluation_interval": "1m", "tests": tests}
    file.write_text(json.dumps(whole))
    return file


def _test(
    alert: str,
    case: Mapping[str, Any],
    why: str,
    series: Mapping[str, Any],
    expected: list[dict[str, Any]],
) -> dict[str, Any]:
    looked_at = {"eval_time": case["at"], "alertname": alert, "exp_alerts": expected}
    return {
        "name": f"{alert}: {why}",
        "interval": "1m",
        "input_series": [
            {"series": _series(name), "values": str(values)} for name, values in series.items()
        ],
        "alert_rule_test": [looked_at],
    }


def _series(text: str) -> str:
    """The whole name of a series of which only the labels that matter are written."""
    name, _, given = text.removesuffix("}").partition("{")
    labels = {"job": "llm/rel", **PROCESS, **LABELS_OF.get(name, QUEUE)}
    labels |= dict(re.findall(r'(\w+)="([^"]*)"', given))
    return PREFIX + name + "{" + ", ".join(f'{key}="{labels[key]}"' for key in labels) + "}"


def _expected(alert: str, case: Mapping[str, Any]) -> dict[str, Any]:
    rule = ALERTS[alert]
    return {
        "exp_labels": {**ABOUT[case["about"]], **case.get("labels", {}), **rule["labels"]},
        "exp_annotations": {**rule["annotations"], "description": case["says"]},
    }


def _promtool(binary: str, *words: str) -> str:
    done = subprocess.run([binary, *words], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
