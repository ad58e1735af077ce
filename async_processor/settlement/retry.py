"""When to try again: equal-jitter backoff, `Retry-After`, and never past the deadline (pure).

The wait before retry n (n = 1 for the first) is `min(max_delay, base_delay * 2^n)`, drawn from
its upper half: "equal jitter" of the AWS Architecture Blog, "Exponential Backoff And Jitter".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from async_processor.settlement.settings import RetrySettings

RETRY_AFTER_JITTER: Final = 0.25
RETRY_AFTER_SHARE: Final = 0.5

Random = Callable[[], float]
"""Draws from [0, 1)."""


def backoff(retry: int, settings: RetrySettings, random: Random) -> float:
    """Seconds to wait before retry number `retry`, which counts from 1."""
    # 2^64 seconds are past every cap; a larger exponent would only overflow the float.
    whole = min(settings.max_delay, settings.base_delay * 2.0 ** min(retry, 64))
    return whole / 2 + random() * whole / 2


def due_at(
    *,
    now: float,
    deadline: float,
    retry: int,
    retry_after: float | None,
    settings: RetrySettings,
    random: Random,
) -> float:
    """Unix time at which retry number `retry` is due; at the latest the deadline.

    A `retry_after` (seconds) longer than the backoff wins, up to half of the time that is left.
    """
    left = max(0.0, deadline - now)
    wait = backoff(retry, settings, random)
    if retry_after is not None:
        asked = retry_after * (1 + random() * RETRY_AFTER_JITTER)
        wait = max(wait, min(asked, left * RETRY_AFTER_SHARE))
    return now + min(wait, left)
