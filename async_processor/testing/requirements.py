"""What a test needs of the machine."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def unavailable(reason: str) -> NoReturn:
    """Skip at home; in CI, where every server is installed, fail."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
