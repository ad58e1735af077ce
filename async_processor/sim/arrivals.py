"""When interactive users send their requests: bursts and pauses, reproducible by a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec


class Rhythm(msgspec.Struct, frozen=True, kw_only=True):
    """Bursts and pauses alternate, beginning with a burst; their lengths are exponential.

    `burst_seconds` and `pause_seconds` are the mean lengths; the rates are requests a second in
    each (a Poisson process), 0 for none.

    Raises:
        ValueError: a mean length is not above 0, or a rate is negative, or both rates are 0.
    """

    burst_seconds: float = 4.0
    pause_seconds: float = 4.0
    burst_rate: float = 10.0
    pause_rate: float = 0.5

    def __post_init__(self) -> None:
        if not (self.burst_seconds > 0 and self.pause_seconds > 0):
            raise ValueError("burst_seconds and pause_seconds must be above 0")
        if self.burst_rate < 0 or self.pause_rate < 0 or not self.burst_rate + self.pause_rate:
            raise ValueError("the rates must not be negative, and one of them must be above 0")


def arrivals(rhythm: Rhythm, chance: random.Random) -> Iterator[float]:
    """Seconds from the start to each request, ascending, without end."""
    begin = 0.0
    while True:
        for mean, rate in (
            (rhythm.burst_seconds, rhythm.burst_rate),
            (rhythm.pause_seconds, rhythm.pause_rate),
        ):
            end = begin + chance.expovariate(1 / mean)
            yield from _within(begin, end, rate, chance)
            begin = end


def _within(begin: float, end: float, rate: float, chance: random.Random) -> Iterator[float]:
    if not rate:
        return
    moment = begin + chance.expovariate(rate)
    while moment < end:
        yield moment
        moment += chance.expovariate(rate)
