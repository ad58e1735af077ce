"""Each fault by itself, under load: every request has one result, and no daemon ends by itself.

What one fault does at one place is proved faster elsewhere: outages and lost answers in
`tests/integration/test_redis_outages.py`, failovers in `test_redis_sentinel.py`, answers of every
wrong kind in `test_http_engine.py`, a drain and a zombie in `tests/acceptance/test_faults.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from async_processor.testing.chaos.catalogue import FAULTS
from async_processor.testing.chaos.plan import alone
from async_processor.testing.chaos.stage import Scene
from async_processor.testing.chaos.trial import trial

SCENE = Scene(replicas=2, workers=8, latency=0.3)


@pytest.mark.parametrize("name", FAULTS)
async def test_alone(name: str, tmp_path: Path) -> None:
    plan = alone(FAULTS[name], seed=1, requests=30, times=1, pause=0.1, replicas=SCENE.replicas)
    verdict = await trial(name, plan, tmp_path, scene=SCENE)
    assert not verdict.problems
