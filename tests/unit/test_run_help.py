"""`run --help` lists every flag that `run` reads, once, although it parses them by itself."""

from __future__ import annotations

import re

import pytest

from async_processor.cli.main import run_command
from async_processor.cli.run_help import GROUPS
from async_processor.config.go_flags import DEPRECATED, FLAGS


def test_every_flag_is_listed_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["run", "--help"]) == 0
    out = capsys.readouterr().out
    assert "Example: async-processor run --config" in out
    listed = re.findall(r"(?<=\s)--?([a-z][\w.-]*)", out.partition("YAML for them:")[2])
    assert sorted(listed) == sorted(FLAGS.keys() - {"config"})
    assert "--config FILE" in out


def test_the_groups_are_of_what_is_not_deprecated() -> None:
    grouped = [name for names in GROUPS.values() for name in names.split()]
    assert sorted(grouped) == sorted(FLAGS.keys() - DEPRECATED.keys() - {"config"})
