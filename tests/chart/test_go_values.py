"""Values of the Go implementation's charts, of both generations, become values of ours: those that
are expected, that our chart takes, and with which the daemon is told the same.

The cases are in `go_values/`.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import yaml

from async_processor.cli.main import run_command
from async_processor.config.migrate import migrate_values
from async_processor.errors import ConfigurationError
from async_processor.testing.kubernetes import Helm, KubernetesSchemas

CASES = {file.stem: file for file in sorted((Path(__file__).parent / "go_values").glob("*.yaml"))}


def case(name: str) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load(CASES[name].read_text())
    return read


@pytest.mark.parametrize("name", CASES)
def test_values_become_ours(name: str) -> None:
    migration = migrate_values(yaml.safe_dump(case(name)["values"]), name)
    assert yaml.safe_load(migration.yaml) == case(name)["ours"]
    assert list(migration.notes) == case(name)["notes"]


@pytest.mark.parametrize("name", CASES)
def test_our_chart_takes_them(helm: Helm, schemas: KubernetesSchemas, name: str) -> None:
    assert schemas.mistakes(helm.template(case(name)["ours"])) == []


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ("replicas: 3", "old.yaml: has no `ap`"),
        ("ap: {igwBaseURL: x}", "ap.transport: is not set, and neither is ap.redis.enabled"),
        ("ap: {redis: {enabled: true}}", "takes redis-pubsub, which loses messages"),
        ("ap: {transport: redis-pubsub, transportConfig: {}}", "redis-pubsub"),
        (
            "ap: {messageQueueImpl: redis-sortedset, redis: {enabled: true}}",
            "transport.queues[0].igw_base_url",
        ),
        (
            "ap: {transport: redis-sortedset, transportConfig: {queues: [gate_type: redis-qota]}}",
            "redis-quota",
        ),
    ],
)
def test_what_cannot_be_migrated_is_said(values: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        migrate_values(values, "old.yaml")
    assert sentence in str(raised.value)


def test_the_command_reads_a_file_or_standard_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = yaml.safe_dump(case("newer_inline_password")["values"])
    (tmp_path / "old.yaml").write_text(text)
    assert run_command(["config", "migrate", "--helm-values", str(tmp_path / "old.yaml")]) == 0
    from_file = capsys.readouterr()
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert run_command(["config", "migrate", "--helm-values", "-"]) == 0
    assert capsys.readouterr() == from_file
    assert from_file.err.startswith("note: broker.url shows in `helm get values`")


def test_values_and_flags_are_not_mixed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["config", "migrate", "--helm-values", "x", "--concurrency=3"]) == 2
    assert "--helm-values: got '--concurrency=3' too" in capsys.readouterr().err
