"""Fails when an installed dependency has a known vulnerability.

    audit.py COMMAND [ARGUMENT ...]

The command is pip-audit with `--format json`. Where it cannot ask (it is not installed, its service
cannot be reached or does not know the packages), that is said, and the check passes: a closed
network is no vulnerability.
"""

# ruff: noqa: T201 - it is a command

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

SECONDS = 300


def main(command: list[str]) -> int:
    try:
        dependencies = asked(command)
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError) as error:
        print(f"audit: NOT DONE, nobody could be asked: {str(error)[:300]}")
        return 0
    vulnerable = [found(each) for each in dependencies if each.get("vulns")]
    skipped = sum("skip_reason" in each for each in dependencies)
    print(f"audit: {len(dependencies) - skipped} packages asked about, {skipped} unknown there")
    for line in vulnerable:
        print(f"audit: VULNERABLE {line}")
    return 1 if vulnerable else 0


def asked(command: list[str]) -> list[dict[str, Any]]:
    """What pip-audit says of each package; whatever its exit code, its JSON tells."""
    done = subprocess.run(  # noqa: S603 - our own arguments
        command, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    if not done.stdout.strip():
        raise ValueError(done.stderr.strip().rpartition("\n")[2] or "no answer")
    dependencies: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    return dependencies


def found(dependency: dict[str, Any]) -> str:
    """One line about a vulnerable package."""
    ids = ", ".join(each["id"] for each in dependency["vulns"])
    fixed = sorted({version for each in dependency["vulns"] for version in each["fix_versions"]})
    return f"{dependency['name']} {dependency['version']}: {ids} (fixed in {', '.join(fixed)})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
