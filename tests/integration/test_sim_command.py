"""`simulate-pool` says where it listens, ends well at a signal, and explains what it refuses."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import urlopen

import pytest

PROGRAM = [sys.executable, "-c", "from async_processor.cli.main import main; main()"]
ANY_PORTS = ["--port", "0", "--pod-port-base", "0"]


@contextmanager
def simulate(*options: str) -> Iterator[subprocess.Popen[str]]:
    command = [*PROGRAM, "simulate-pool", *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def refusal(*options: str) -> tuple[int, str]:
    done = subprocess.run(
        [*PROGRAM, "simulate-pool", *options], capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_prints_its_urls_serves_and_ends_at_a_signal(number: signal.Signals) -> None:
    with simulate(*ANY_PORTS, "--json", "--pods", "3", "--instant") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        urls = json.loads(process.stdout.readline())
        assert len(urls["pod_urls"]) == 3
        with urlopen(urls["metrics_url"], timeout=60) as response:
            assert b"llm_d_epp_ready_endpoints" in response.read()
        process.send_signal(number)
        assert process.wait(timeout=60) == 0
        assert process.stderr.read() == ""


def test_it_names_router_and_pods_in_words() -> None:
    with simulate(*ANY_PORTS, "--fault", "error=1", "--fault", "not-ready=false") as process:
        assert process.stdout is not None
        first, second = process.stdout.readline(), process.stdout.readline()
        assert first.startswith("router")
        assert second.startswith("sim-0")
        with urlopen(f"{second.split()[1]}/faults", timeout=60) as response:
            assert json.load(response)["pods"][0]["error"] == 1


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--fault", "hang"], "NAME=VALUE"),
        (["--fault", "hang=2"], "hang"),
        (["--fault", "explode=1"], "explode"),
        (["--num-gpu-blocks-override", "10"], "max_model_len"),
        (["--max-num-seqs", "0"], "max_num_seqs"),
    ],
)
def test_wrong_options_are_explained_in_one_line(options: list[str], complaint: str) -> None:
    code, errors = refusal(*options)
    assert code == 2
    assert complaint in errors
    assert errors.count("\n") == 1


def test_a_taken_port_is_explained() -> None:
    with simulate(*ANY_PORTS, "--json", "--instant") as process:
        assert process.stdout is not None
        port = json.loads(process.stdout.readline())["url"].rsplit(":", 1)[1]
        code, errors = refusal("--port", port)
    assert code == 1
    assert "--port" in errors
