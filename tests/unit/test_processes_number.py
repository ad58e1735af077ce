"""How many processes `auto` is: the cores that may be used, and no more than are paid for."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from async_processor.config.load import validated
from async_processor.config.settings import Settings
from async_processor.processes import number
from async_processor.processes.number import number_of, usable_cores


@pytest.fixture
def quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 5}, raising=False)
    return tmp_path / "cpu.max"


def settings(processes: int | str, workers: int, *, shared: bool) -> Settings:
    """Two pools, of which the larger one has the gate of a queue."""
    queue = {"igw_base_url": "http://gw", "gate": {"type": "constant", "shared": shared}}
    pools = [{"id": "default", "workers": workers}, {"id": "other", "workers": 1}]
    document = {"processes": processes, "transport": {"queues": [queue]}, "worker_pools": pools}
    return validated(document, {})


def test_a_number_is_that_number() -> None:
    assert number_of(settings(3, 3, shared=True)) == 3


@pytest.mark.parametrize(
    ("workers", "shared", "processes"), [(2, True, 2), (9, True, 4), (2, False, 4)]
)
def test_auto_leaves_no_process_without_a_worker_of_a_pool_whose_gates_are_shared(
    quota: Path, monkeypatch: pytest.MonkeyPatch, *, workers: int, shared: bool, processes: int
) -> None:
    monkeypatch.setattr(number, "usable_cores", partial(usable_cores, quota))
    assert number_of(settings("auto", workers, shared=shared)) == processes


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
