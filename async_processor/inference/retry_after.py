"""Reads `Retry-After`: a number of seconds, or an HTTP date."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

_SECONDS: Final = re.compile(r"\d{1,10}(\.\d{1,9})?", re.ASCII)


def read(value: str | None, *, date: str | None, now: float) -> float | None:
    """The wait in seconds that a server asks for; None when it asks for none or writes nonsense.

    A date is judged by the answer's own `Date`, so that a wrong clock on either side does no
    harm, and without one by `now` (Unix time in seconds). A date in the past means at once.
    """
    if value is None:
        return None
    text = value.strip()
    if _SECONDS.fullmatch(text):
        return float(text)
    due = _unix_time(text)
    if due is None:
        return None
    answered_at = _unix_time(date) if date else None
    return max(0.0, due - (now if answered_at is None else answered_at))


def _unix_time(text: str) -> float | None:
    try:
        moment = parsedate_to_datetime(text)
        return _in_utc(moment).timestamp()
    except (ValueError, OverflowError):
        return None


def _in_utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
