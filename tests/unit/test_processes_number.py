"""How many processes `auto` is: the cores that may be used, and no more than are paid for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from async_processor.processes.number import number_of, usable_cores


@pytest.fixture
def quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 5}, raising=False)
    return tmp_path / "cpu.max"


def test_a_number_is_that_number() -> None:
    assert number_of(3) == 3


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("max 100000", 4),
        ("250000 100000", 2),
        ("50000 100000", 1),
        ("900000 100000", 4),
        ("what is this", 4),
    ],
)
def test_cores_by_the_containers_limit(quota: Path, text: str, cores: int) -> None:
    quota.write_text(text)
    assert usable_cores(quota) == cores


def test_cores_without_any_limit(quota: Path) -> None:
    assert usable_cores(quota) == 4
