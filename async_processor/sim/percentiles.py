"""Percentiles of a few thousand measurements."""

from __future__ import annotations

import math
from collections.abc import Iterable


def percentile(values: Iterable[float], share: float) -> float | None:
    """The smallest value that `share` (0 to 1) of all values do not exceed; None without values."""
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
