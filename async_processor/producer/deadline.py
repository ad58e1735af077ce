"""From what people write as a deadline to the whole Unix seconds that travel in a message."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

from async_processor.fields import read_duration
from async_processor.producer.errors import DeadlinePassed, InvalidSubmission

Deadline = float | datetime | timedelta | str
"""Unix seconds, a datetime with a time zone, a duration from now, or one of them as text."""

_FORMS: Final = "write a duration (90s, 1h30m), Unix seconds or an ISO 8601 time with its zone"
_TEXTS: Final = 128
_MILLISECONDS_FROM: Final = 1e11
"""As seconds this is the year 5138; whoever writes more than that means milliseconds."""


def unix_deadline(deadline: Deadline, now: float) -> int:
    """The deadline in whole Unix seconds, rounded up; `now` is the broker's Unix time in seconds.

    Whole, because other readers of these messages take an integer.

    Raises:
        DeadlinePassed: it lies at or before `now`.
        InvalidSubmission: it is no deadline.
    """
    at = _unix_seconds(deadline, now)
    if not math.isfinite(at) or at >= _MILLISECONDS_FROM:
        raise InvalidSubmission("deadline", f"{deadline!s} is not a time in Unix seconds; {_FORMS}")
    if at <= now:
        raise DeadlinePassed("deadline", f"{deadline!s} passed {_ago(now - at)} ago{_hint(at)}")
    return math.ceil(at)


def unix_since(moment: str, now: float) -> float:
    """The Unix seconds of a moment that lies back; a duration counts back from `now`.

    Raises InvalidSubmission when it is no time.
    """
    return _read(moment.strip(), lambda seconds: now - seconds)


def _unix_seconds(deadline: Deadline, now: float) -> float:
    match deadline:
        case str():
            return _read(deadline.strip(), lambda seconds: now + seconds)
        case timedelta():
            return now + deadline.total_seconds()
        case datetime():
            return _timestamp(deadline)
        case bool():
            raise InvalidSubmission("deadline", f"{deadline} is no deadline; {_FORMS}")
        case int() | float():
            return float(max(min(deadline, _MILLISECONDS_FROM), 0))
    raise InvalidSubmission("deadline", f"a {type(deadline).__name__} is no deadline; {_FORMS}")


def _read(text: str, after: Callable[[float], float]) -> float:
    """Unix seconds, a time in ISO 8601, or what lies that many seconds `after` now."""
    seconds, from_now = _parsed(text)
    return after(seconds) if from_now else seconds


@lru_cache(_TEXTS)
def _parsed(text: str) -> tuple[float, bool]:
    """Seconds, and whether they count from now; most requests of a sender have the same text."""
    for reader, from_now in ((float, False), (read_duration, True), (_read_moment, False)):
        with suppress(ValueError):
            return reader(text), from_now
    raise InvalidSubmission("deadline", f"{text!r} is no time; {_FORMS}")


def _read_moment(text: str) -> float:
    return _timestamp(datetime.fromisoformat(text))


def _timestamp(moment: datetime) -> float:
    if moment.tzinfo is None:
        raise InvalidSubmission("deadline", f"{moment.isoformat()} has no time zone; {_FORMS}")
    return moment.timestamp()


def _ago(passed: float) -> str:
    return f"{timedelta(seconds=round(passed))}" if passed >= 1 else "less than a second"


def _hint(at: float) -> str:
    """A small number is a duration whose unit was forgotten."""
    return f"; for a duration write {at:g}s" if 0 < at < 1e8 else ""
