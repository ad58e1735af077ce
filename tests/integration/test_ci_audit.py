"""The audit of dependencies in CI: a known vulnerability fails it, a closed network does not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

AUDIT = Path(__file__).parents[2] / ".ci" / "audit.py"
GOOD = {"name": "fine", "version": "1.0", "vulns": []}
UNKNOWN = {"name": "ours", "skip_reason": "Dependency not found on PyPI"}
BAD = {
    "name": "holey",
    "version": "2.0",
    "vulns": [{"id": "PYSEC-2026-1", "fix_versions": ["2.1"], "aliases": [], "description": "x"}],
}


def audit(*command: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, str(AUDIT), *command], capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stdout


def answering(dependencies: list[dict[str, Any]], code: int = 0) -> list[str]:
    text = json.dumps({"dependencies": dependencies, "fixes": []})
    return [sys.executable, "-c", f"print({text!r}); raise SystemExit({code})"]


def test_a_known_vulnerability_fails() -> None:
    code, told = audit(*answering([GOOD, BAD], code=1))
    assert code == 1
    assert "VULNERABLE holey 2.0: PYSEC-2026-1 (fixed in 2.1)" in told


def test_without_one_it_passes_and_says_how_much_was_asked() -> None:
    assert audit(*answering([GOOD, UNKNOWN])) == (
        0,
        "audit: 1 packages asked about, 1 unknown there\n",
    )


@pytest.mark.parametrize(
    "command",
    [
        ["/no/such/pip-audit"],
        [sys.executable, "-c", "raise SystemExit('the service cannot be reached')"],
        [sys.executable, "-c", "print('<html>')"],
        [sys.executable, "-c", "print('[]')"],
    ],
)
def test_where_nobody_can_be_asked_it_passes_and_says_so(command: list[str]) -> None:
    code, told = audit(*command)
    assert code == 0
    assert told.startswith("audit: NOT DONE")
