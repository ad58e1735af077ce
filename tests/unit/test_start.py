"""What the daemon does until it is ready: it imports no more than its configuration needs, and is
not looked through for garbage meanwhile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_BUILT = """
import sys
from async_processor.cli import main, run
from async_processor.config.run_inputs import settings_from
from async_processor.daemon.build import build
build(settings_from(["--config", sys.argv[1]], {}).settings)
print([name for name in sys.argv[2:] if name in sys.modules])
"""

_COLLECTOR = """
import gc
from async_processor.daemon import garbage
garbage.put_off_the_garbage_collector()
assert not gc.isenabled()
garbage.spare_the_garbage_collector()
assert gc.isenabled()
assert gc.get_freeze_count()
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(
        "transport: {type: redis-sortedset, queues: "
        "[{queue_name: q, igw_base_url: 'http://gateway', gate: {type: constant}}]}"
    )
    return path


def test_what_other_commands_and_gates_need_is_not_imported(config: Path) -> None:
    heavy = ["typer", "httpx", "google.api_core", "async_processor.sensors.pages"]
    assert _printed(_BUILT, str(config), *heavy) == "[]"


def test_the_garbage_collector_works_again_once_the_daemon_is_built() -> None:
    assert _printed(_COLLECTOR) == ""


def _printed(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
