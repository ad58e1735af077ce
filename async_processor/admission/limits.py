"""How many requests may start, or run, under a budget. Pure: no clock, no source, no waiting.

A budget is a share of the workers. A reading says how much room there was, so it allows so many
starts until the next one (`start_ledger`); a limit that somebody sets allows so many at once
(`in_flight`).
"""

from __future__ import annotations

import math
from typing import Final

from async_processor.admission.portion import Portion

PARTS: Final = 1 << 32
"""One start, in parts: whole numbers, so that fractions add up without drift."""

_ROUNDING: Final = 1e-9


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
    return portion.of_many(round(starts * PARTS)) / PARTS


def own_places(places: float, portion: Portion) -> float:
    """One replica's part of free places that were counted, whole ones: of one that two had half of
    each, both would make use. What is left of a place is the next replica's alone."""
    whole = math.floor(places + _ROUNDING)
    next_one = portion.of(whole + 1) - portion.of(whole)
    return portion.of(whole) + next_one * max(0.0, places - whole)
