"""Figures as machines write them: what Python's `float` takes besides is a slip of somebody's."""

from __future__ import annotations

import math
import re
from typing import Final

_FIGURE: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)


def finite(text: str) -> float | None:
    """A decimal number with nothing around or inside it; None: `text` is no such, or too large."""
    value = float(text) if _FIGURE.fullmatch(text) else math.inf
    return value if math.isfinite(value) else None
