"""The program's name, and how it says what went wrong."""

from __future__ import annotations

import sys
from typing import Final

PROGRAM: Final = "async-processor"
INTERRUPTED: Final = 130
"""The exit code after Ctrl-C."""


def say(message: str, code: int) -> int:
    """Say on standard error what went wrong; returns the exit code."""
    for line in message.splitlines():
        sys.stderr.write(f"{PROGRAM}: {line}\n")
    return code
