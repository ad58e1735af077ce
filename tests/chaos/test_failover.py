"""What replicas have confirmed survives a failover, although the replica lagged."""

from __future__ import annotations

from pathlib import Path

import pytest

from async_processor.fields import Confirm
from async_processor.testing.chaos.failover import lose_by_failover


@pytest.mark.timeout(300)
async def test_no_confirmed_submission_is_lost(tmp_path: Path) -> None:
    confirm = Confirm(replicas=1, timeout=1.0)
    loss = await lose_by_failover("lag", tmp_path, confirm=confirm, master_args=())
    assert loss.lost == 0
