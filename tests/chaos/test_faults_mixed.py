"""Faults of every kind, side by side: the short form of `make chaos`, always with the same seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from async_processor.testing.chaos.catalogue import FAULTS
from async_processor.testing.chaos.plan import mixed
from async_processor.testing.chaos.stage import Scene
from async_processor.testing.chaos.trial import trial

SEED = 1
SCENE = Scene(replicas=3, workers=8, latency=0.3, seed=SEED)


@pytest.mark.timeout(300)
async def test_mixed(tmp_path: Path) -> None:
    plan = mixed(FAULTS, seed=SEED, requests=400, kills=9, seconds=15, replicas=SCENE.replicas)
    verdict = await trial("mixed", plan, tmp_path, scene=SCENE)
    assert not verdict.problems
