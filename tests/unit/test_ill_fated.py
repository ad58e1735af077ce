"""The double of the command dies exactly where it is told to, and shows the time it is told to."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from async_processor.redis_io import scripts
from async_processor.redis_io.scripts import Script
from async_processor.testing.ill_fated import Probe, ProbePoint, wrong_time


class Journal:
    """What happened in which order: scripts that Redis executed, and the death."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: Any = 1) -> None:
        self.events: list[str] = []

        async def run(script: Script, *_: Any) -> Any:
            self.events.append("executed")
            return answer

        monkeypatch.setattr(Script, "run", run)

    def probe(self, told: str) -> Probe:
        return Probe(ProbePoint.read(told), lambda: self.events.append("died"))


async def call(probe: Probe, script: Script, arguments: Sequence[str] = ()) -> None:
    await probe.run(script, None, (), arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("told", "events"),
    [
        ("claim:before:1", ["died", "executed", "executed"]),
        ("claim:after:1", ["executed", "died", "executed"]),
        ("claim:before:2", ["executed", "died", "executed"]),
        ("claim:after:3", ["executed", "executed"]),
    ],
)
async def test_the_turn_and_the_moment(
    told: str, events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(monkeypatch)
    probe = journal.probe(told)
    await call(probe, scripts.CLAIM)
    await call(probe, scripts.CLAIM)
    assert journal.events == events


async def test_an_outcome_is_told_from_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(monkeypatch)
    probe = journal.probe("retry:before:1")
    await call(probe, scripts.SETTLE, ["token", "post"])
    await call(probe, scripts.SETTLE, ["token", "retry"])
    assert journal.events == ["executed", "died", "executed"]


async def test_a_reclaim_of_nothing_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(monkeypatch, answer=0)
    await call(journal.probe("reclaim:after:1"), scripts.RECLAIM)
    assert journal.events == ["executed"]


@pytest.mark.parametrize("told", ["settle:before:1", "claim:during:1", "claim:before:x"])
def test_an_unknown_point_is_refused(told: str) -> None:
    with pytest.raises(ValueError, match=r"point|int"):
        ProbePoint.read(told)


def test_a_clock_may_be_ahead_or_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    monkeypatch.setattr(time, "monotonic", iter((0, 3, 6, 9, 12)).__next__)
    assert wrong_time("600")() == 1600
    jumping = wrong_time("600:3")
    assert [jumping() for _ in range(5)] == [1000, 1600, 1000, 400, 1000]
