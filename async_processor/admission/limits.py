"""How many requests may start, or run, under a budget. Pure: no clock, no source, no waiting.

A budget is a share of the workers. A reading says how much room there was, so it allows so many
starts until the next one (`start_ledger`); `InFlightAllowance` is for limits that somebody sets: at
most so many at once.
"""

from __future__ import annotations

import math
from typing import Final

from async_processor.admission.census import Portion

PARTS: Final = 1 << 32
"""One start, in parts: whole numbers, so that fractions add up without drift."""

_ROUNDING: Final = 1e-9


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


def own_starts(starts: float | None, portion: Portion) -> float | None:
    """One replica's part of the starts; the parts of all replicas add up exactly.

    Of any number of starts (None) there is nothing to divide.
    """
    if starts is None or portion.is_whole:
        return starts
    return portion.of(round(starts * PARTS)) / PARTS
