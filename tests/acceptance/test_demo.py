"""The demo does the whole job by itself, and says so with its exit code."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest


async def _demo(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "async_processor", "demo", *options]
    return await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=240
    )


@pytest.mark.parametrize("gate", ["--gate", "--no-gate"])
async def test_every_request_is_accounted_for(gate: str) -> None:
    done = await _demo("--requests", "30", "--json", gate)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["submitted"], summary["missing"], summary["doubled"]) == (30, 0, 0)
    assert sum(sum(counts.values()) for counts in summary["results"].values()) == 30


async def test_the_summary_is_for_people() -> None:
    done = await _demo("--requests", "12")
    assert done.returncode == 0, done.stderr
    assert "12 requests in" in done.stdout
    assert "without a result: 0, with two: 0" in done.stdout
    assert "team-green" in done.stdout
