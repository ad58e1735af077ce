"""Tracing is off until the standard variables ask for it, and then nothing of it is loaded."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping

import pytest

from async_processor.daemon.tracing import build_tracing
from async_processor.errors import ConfigurationError

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACES_ENDPOINT = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
URL = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {ENDPOINT: ""},
        {ENDPOINT: URL, "OTEL_SDK_DISABLED": "true"},
        {ENDPOINT: URL, "OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_SERVICE_NAME": "mine", "OTEL_TRACES_SAMPLER": "always_on"},
    ],
)
def test_off(environ: Mapping[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert build_tracing(environ) is None
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", [ENDPOINT, TRACES_ENDPOINT])
async def test_on(name: str) -> None:
    tracing = build_tracing({name: URL, "OTEL_TRACES_EXPORTER": "otlp"})
    assert tracing is not None
    await tracing.stop()
    await tracing.stop()


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon", "could not convert"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zip", 'Invalid value "zip"'),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "-5", "must be a positive integer"),
        (ENDPOINT, "http://[", "Invalid IPv6 URL"),
    ],
)
def test_variables_that_make_no_sense_stop_the_start(
    name: str, value: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library reads the process' own."""
    monkeypatch.setenv(ENDPOINT, URL)
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=rf"^OTEL_\*: .*{re.escape(fault)}"):
        build_tracing(os.environ)


def test_another_protocol_is_said_to_be_foreign(capsys: pytest.CaptureFixture[str]) -> None:
    environ = {ENDPOINT: URL, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
    assert build_tracing(environ) is None
    assert "http/protobuf is not spoken here" in capsys.readouterr().out


def test_without_the_extra_the_log_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "async_processor.telemetry.tracing", None)
    assert build_tracing({ENDPOINT: URL}) is None
    assert "async-processor[otel]" in capsys.readouterr().out


def test_a_daemon_that_is_not_traced_loads_nothing_for_it() -> None:
    """What redis-py loads by itself, where it finds OpenTelemetry, is its own affair."""
    program = (
        "import sys, async_processor.cli.run, async_processor.daemon.daemon\n"
        "from async_processor.daemon.tracing import build_tracing\n"
        "from async_processor.config.load import validated\n"
        "from async_processor.daemon.build import build\n"
        "queue = {'igw_base_url': 'http://gw'}\n"
        "settings = validated({'transport': {'type': 'memory', 'queues': [queue]}}, {})\n"
        "build(settings, tracing=build_tracing({}))\n"
        "ours = {name for name in sys.modules if name.startswith('async_processor')}\n"
        "tracing = {name for name in ours if name.endswith(('telemetry.tracing', 'traced'))}\n"
        "sys.exit(', '.join(tracing) or 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
