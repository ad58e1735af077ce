"""`config validate`, `schema` and `migrate` from the outside: output, errors and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from async_processor.cli.main import run_command
from async_processor.config.load import load_text
from async_processor.config.schema import schema

GOOD = "transport: {queues: [{queue_name: q, igw_base_url: '${GATEWAY:-http://gw}'}]}\n"
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.yaml"
    path.write_text(GOOD)
    return path


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    path = tmp_path / "bad.yaml"
    path.write_text(GOOD + "sever: {}\ndrain_timeout: soon\n")
    return path


def test_a_valid_file_is_said_to_be_valid(good: Path, capsys: Captured) -> None:
    assert run_command(["config", "validate", str(good)]) == 0
    assert capsys.readouterr() == (f"{good}: valid\n", "")


def test_every_mistake_is_a_line_with_file_path_value_and_nearest_name(
    bad: Path, good: Path, capsys: Captured
) -> None:
    assert run_command(["config", "validate", str(bad), str(good)]) == 2
    out, err = capsys.readouterr()
    assert out == f"{good}: valid\n"
    assert err.splitlines() == [
        (
            f"{bad}: drain_timeout: got 'soon', must be a duration like 500ms, 5s, 2m or 1h, or a "
            "number of seconds"
        ),
        f"{bad}: sever: unknown key; did you mean 'server'?",
    ]


def test_a_mistake_of_syntax_names_file_and_line_once(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "twice.yaml"
    path.write_text("a: 1\na: 2\n")
    assert run_command(["config", "validate", str(path)]) == 2
    assert capsys.readouterr().err == f"{path}:2:1: duplicate key 'a'\n"


def test_a_missing_file_is_named(capsys: Captured) -> None:
    assert run_command(["config", "validate", "/nowhere.yaml"]) == 2
    err = capsys.readouterr().err
    assert err == "/nowhere.yaml: cannot be read: No such file or directory\n"


def test_warnings_do_not_make_a_file_wrong(good: Path, capsys: Captured) -> None:
    good.write_text(GOOD + "drain_timeout: 1s\n")
    assert run_command(["config", "validate", str(good)]) == 0
    out, err = capsys.readouterr()
    assert out == f"{good}: valid\n"
    assert err.startswith(f"{good}: warning: drain_timeout: 1s is shorter than")


def test_the_environment_is_obeyed(
    good: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWAY", "nonsense")
    assert run_command(["config", "validate", str(good)]) == 2
    assert "igw_base_url: got 'nonsense'" in capsys.readouterr().err


def test_as_json_it_says_the_same_and_shows_the_settings(
    bad: Path, good: Path, capsys: Captured
) -> None:
    assert run_command(["config", "validate", "--json", str(bad), str(good)]) == 2
    first, second = json.loads(capsys.readouterr().out)
    assert (first["file"], first["valid"]) == (str(bad), False)
    assert [problem["path"] for problem in first["problems"]] == ["drain_timeout", "sever"]
    assert (second["valid"], second["problems"], second["warnings"]) == (True, [], [])
    assert second["settings"]["transport"]["queues"][0]["igw_base_url"] == "http://gw"


def test_the_schema_knows_the_bounds_of_numbers() -> None:
    gate = schema()["$defs"]["PrometheusSaturationGate"]["properties"]["threshold"]
    assert gate["anyOf"][0] == {"exclusiveMinimum": 0, "maximum": 1, "type": "number"}


def test_the_schema_is_printed(capsys: Captured) -> None:
    assert run_command(["config", "schema"]) == 0
    assert json.loads(capsys.readouterr().out) == schema()


MIGRATED = [
    *("config", "migrate", "--transport", "redis-sortedset", "-transport-config"),
    '{"batch_size": 5, "queues": [{"queue_name": "q", "igw_base_url": "http://gw"}]}',
    *("--concurrency", "3", "-v", "4"),
]


def test_flags_become_yaml_and_notes_go_to_standard_error(capsys: Captured) -> None:
    assert run_command(MIGRATED) == 0
    out, err = capsys.readouterr()
    assert load_text(out, {}, name="migrated").worker_pools[0].workers == 3
    assert err.splitlines() == [
        "note: batch_size is ignored: as much is claimed as there are free workers",
        "note: -v=4 is not in the file: give it to run, beside --config",
    ]


def test_migrating_prints_json_too(capsys: Captured) -> None:
    assert run_command([*MIGRATED, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert load_text(printed["yaml"], {}, name="migrated").queues[0].queue_name == "q"
    assert len(printed["notes"]) == 2


def test_wrong_flags_are_wrong_usage(capsys: Captured) -> None:
    assert run_command(["config", "migrate", "--concurency=3"]) == 2
    assert "did you mean --concurrency?" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["validate", "schema", "migrate"])
def test_help_has_an_example(command: str, capsys: Captured) -> None:
    assert run_command(["config", command, "--help"]) == 0
    assert f"Example: async-processor config {command}" in capsys.readouterr().out
