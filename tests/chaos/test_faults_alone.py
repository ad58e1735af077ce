"""Each fault by itself, under load: every request has one result, and no daemon ends by itself.

What one fault does at one place is proved faster elsewhere: outages and lost answers in
`tests/integration/test_redis_outages.py`, failovers in `test_redis_sentinel.py`, answers of every
wrong kind in `test_http_engine.py`, drains and zombies in `tests/acceptance`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from async_processor.testing.chaos import broker_faults, inference_faults, process_faults
from async_processor.testing.chaos.catalogue import FAULTS
from async_processor.testing.chaos.fault import Fault
from async_processor.testing.chaos.plan import each
from async_processor.testing.chaos.stage import Scene
from async_processor.testing.chaos.trial import trial

SCENE = Scene(replicas=2, workers=8, latency=0.3)
GROUPS = {
    "signals": [fault for fault in process_faults.ALL if fault not in process_faults.PROBED],
    "broker": broker_faults.ALL,
    "probe points before": [fault for fault in process_faults.PROBED if " before " in fault.name],
    "probe points after": [fault for fault in process_faults.PROBED if " after " in fault.name],
    "inference": inference_faults.ALL,
}


def test_every_fault_has_its_turn() -> None:
    turns = [fault for faults in GROUPS.values() for fault in faults]
    assert sorted(fault.name for fault in turns) == sorted(FAULTS)


@pytest.mark.timeout(480)
@pytest.mark.parametrize("faults", GROUPS.values(), ids=GROUPS)
async def test_each_alone(faults: list[Fault], tmp_path: Path) -> None:
    plan = each(faults, seed=1, requests=20, replicas=SCENE.replicas)
    verdict = await trial("each alone", plan, tmp_path, scene=SCENE, one_by_one=True)
    assert not verdict.problems
