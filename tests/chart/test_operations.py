"""The operations guide has a section for every alert, and what it says can be followed."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Set
from pathlib import Path
from typing import Final

import yaml

from async_processor.telemetry.metrics import Metrics
from async_processor.telemetry.series import PREFIX

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "operations.md"
TEXT: Final = PAGE.read_text()
ALERTS: Final = [
    rule
    for group in yaml.safe_load((ROOT / "charts/async-processor/files/alerts.yaml").read_text())[
        "groups"
    ]
    for rule in group["rules"]
]
QUERIES: Final = re.findall(r"```promql\n(.*?)```", TEXT, re.DOTALL)


def anchors(page: Path) -> Set[str]:
    """Where links may lead to within a page, as GitHub names it."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def exported() -> Set[str]:
    """The names of our series, without the prefix."""
    metrics = Metrics()
    metrics.queue("q", "q", "p")
    metrics.pool("p")
    metrics.drain_limit("p")
    declared = re.findall(r"^# TYPE (\S+)", metrics.exposition().decode(), re.MULTILINE)
    return {name.removeprefix(PREFIX) for name in declared if name.startswith(PREFIX)}


def test_every_alert_has_a_section_and_every_section_an_alert() -> None:
    sections = re.findall(r"^### (AsyncProcessor\w+)$", TEXT, re.MULTILINE)
    assert sections == [rule["alert"] for rule in ALERTS]


def test_every_runbook_link_leads_to_a_section() -> None:
    for rule in ALERTS:
        page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert anchor in anchors(ROOT / page), rule["alert"]


def test_every_link_leads_somewhere() -> None:
    for link in re.findall(r"\]\(([^)]+)\)", TEXT):
        path, _, anchor = link.partition("#")
        page = (PAGE.parent / path).resolve() if path else PAGE
        assert page.exists(), link
        assert not anchor or anchor in anchors(page), link


def test_every_metric_that_is_named_exists() -> None:
    asked = re.findall(rf"{PREFIX}(\w+)", TEXT)
    named = re.findall(r"`(\w+_(?:total|millis|requests|available|backlog|budget|limit))`", TEXT)
    names = {name.removesuffix("_bucket") for name in (*asked, *named)}
    assert names - exported() <= {"dead_letter_limit"}


def test_prometheus_understands_every_query(promtool: str, tmp_path: Path) -> None:
    rules = [{"record": f"query:{i}", "expr": query} for i, query in enumerate(QUERIES)]
    file = tmp_path / "queries.json"
    file.write_text(json.dumps({"groups": [{"name": "guide", "rules": rules}]}))
    done = subprocess.run(
        [promtool, "check", "rules", str(file)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
