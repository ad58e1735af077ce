"""The limit on open files: raised as far as it goes, and named where that is not far enough."""

from __future__ import annotations

import resource

import pytest
from structlog.testing import capture_logs

from async_processor.daemon import open_files

INFINITY = resource.RLIM_INFINITY


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What was set, after the limits that there are."""
    history = [(1024, 20_000)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: history[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: history.append(limits))
    return history


def test_a_limit_that_suffices_is_left_alone(limits: list[tuple[int, int]]) -> None:
    with capture_logs() as logs:
        open_files.provide(1024 - open_files.BESIDES)
    assert limits == [(1024, 20_000)]
    assert not logs


def test_the_soft_limit_is_raised_to_what_is_needed(limits: list[tuple[int, int]]) -> None:
    with capture_logs() as logs:
        open_files.provide(10_000)
    assert limits[-1] == (10_000 + open_files.BESIDES, 20_000)
    assert not logs


def test_a_hard_limit_that_is_too_low_is_named(limits: list[tuple[int, int]]) -> None:
    with capture_logs() as logs:
        open_files.provide(30_000)
    assert limits[-1] == (20_000, 20_000)
    (said,) = logs
    assert said["event"] == "open_files_limited"
    assert (said["limit"], said["workers"]) == (20_000, 30_000)
    assert said["needed"] == 30_000 + open_files.BESIDES


@pytest.mark.parametrize("now", [(1024, INFINITY), (INFINITY, INFINITY)])
def test_no_limit_is_no_limit(limits: list[tuple[int, int]], now: tuple[int, int]) -> None:
    limits[:] = [now]
    with capture_logs() as logs:
        open_files.provide(90_000)
    assert not logs
    assert limits[-1][0] in (INFINITY, 90_000 + open_files.BESIDES)
