"""When failed attempts are repeated."""

from __future__ import annotations

from async_processor.fields import Count, Interval, PositiveDuration, Section


class RetrySettings(Section):
    """Backoff between attempts; the deadline always wins over it."""

    base_delay: PositiveDuration = 2.0
    """Seconds; the wait before retry n is base_delay * 2^n, with jitter."""
    max_delay: Interval = 60.0
    """Seconds; no wait is longer than this."""
    max_attempts: Count | None = None
    """Calls per request; default: no limit but the deadline."""
