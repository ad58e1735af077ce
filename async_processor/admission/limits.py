"""How many requests may start, or run, under a budget. Pure: no clock, no source, no waiting.

A budget is a share of the workers. `StartAllowance` is for gates over readings: a reading says
how much room there was, so it allows so many starts until the next one. `InFlightAllowance` is
for limits that somebody sets: at most so many at once.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final

from async_processor.admission.census import Portion

_ONE: Final = 1 << 32
"""One start, in parts: whole numbers, so that fractions add up without drift."""

_ROUNDING: Final = 1e-9


class StartAllowance:
    """At most as many starts per reading as the reading allows.

    * Starts since a reading was taken count against it, also those from before it arrived.
    * A fraction that is left over is added to the next reading's, so that a small budget is slow
      and not zero; in the long run as many start as was allowed. Whole starts that nobody wanted
      lapse: what is carried over is always less than one, so idleness builds no burst.
    * A reading that allows 0 lets nothing start. The fraction (less than one start) outlives it,
      so that a budget that flickers around 0 is slow as well.
    """

    def __init__(self) -> None:
        self._starts: float | None = 0.0
        self._parts = 0
        self._carried = 0
        self._started: deque[float] = deque()
        """When those started that the reading cannot know of, in the reading's seconds."""

    def renew(self, starts: float | None, *, taken_at: float) -> None:
        """A new reading, taken then (seconds), allows this many starts; None: any number."""
        while self._started and self._started[0] < taken_at:
            self._started.popleft()
        self._carried = min(max(self._parts, 0), _ONE - 1)
        self.revise(starts)

    def revise(self, starts: float | None) -> None:
        """The reading that there is allows another number of starts than before."""
        self._parts = self._carried
        self._starts = starts
        if starts is not None:
            self._parts += round(starts * _ONE) - len(self._started) * _ONE

    def available(self) -> int | None:
        """How many may start now; None: any number."""
        if self._starts is None:
            return None
        return max(0, self._parts // _ONE)

    def take(self, now: float) -> bool:
        """One starts now (seconds), if it may."""
        if self.available() == 0:
            return False
        self._started.append(now)
        if self._starts is not None:
            self._parts -= _ONE
        return True

    def refund(self, started_at: float) -> None:
        """What was taken then did not start after all."""
        if started_at in self._started:
            self._started.remove(started_at)
            if self._starts is not None:
                self._parts += _ONE
        else:
            # Its reading is gone: what would have been carried over, had it not been taken.
            self._parts += _ONE - 1 - self._carried
            self._carried = _ONE - 1


class InFlightAllowance:
    """At most `limit` at once; None: any number. A limit that falls cuts nothing off."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.in_flight = 0

    def available(self) -> int | None:
        """How many may start now; None: any number."""
        return None if self.limit is None else max(0, self.limit - self.in_flight)

    def take(self) -> bool:
        """One starts now, if it may."""
        if self.available() == 0:
            return False
        self.in_flight += 1
        return True

    def give_back(self) -> None:
        """One has ended."""
        self.in_flight -= 1


def in_flight_limit(budget: float, workers: int) -> int | None:
    """How many of `workers` a budget in [0, 1] lets run at once; None: it sets no limit."""
    return None if budget >= 1 else math.floor(budget * workers + _ROUNDING)


def start_limit(budget: float, slots: float) -> float | None:
    """How many of `slots` a budget in [0, 1] lets start per reading; None: it sets no limit."""
    return None if budget >= 1 else budget * slots


def own_starts(starts: float | None, portion: Portion, workers: int) -> float | None:
    """One replica's part of the starts; the parts of all replicas add up exactly.

    Any number of starts (None) is divided as so many as there are workers.
    """
    if portion.is_whole:
        return starts
    return portion.of(round((workers if starts is None else starts) * _ONE)) / _ONE
