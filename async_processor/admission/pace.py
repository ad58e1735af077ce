"""How soon the starts that a reading allows may start. Pure: time is passed in.

What a pool takes on shows late: a reading is old when it arrives, a request that has just started
holds little of its cache yet, and many that come at once wait in line, which looks like saturation
and is answered with 429. So that a pool fills up to its threshold and not beyond, what runs grows
slowly from reading to reading (`Growth`), and the starts of one reading are spread over the time
until the next (`Pace`). Both only ever hold back what a reading allows.
"""

from __future__ import annotations

import math
from typing import Final

FEW: Final = 8
"""So many a pool bears even all at once."""

SHARE: Final = 0.1
"""Of the workers: by so many more may run at each reading."""

TICK: Final = 0.02
"""Seconds at least between two wake-ups for starts that have become due."""


class Growth:
    """What has ended since the last reading may be replaced, and a share more may start.

    So an idle pool is filled within ten readings, and short requests, many of which end between
    two readings, are not slowed down once it is.
    """

    def __init__(self) -> None:
        self._ended = 0

    def ended(self) -> None:
        """One that had started has ended."""
        self._ended += 1

    def limit(self, starts: float | None, workers: float) -> float | None:
        """How many of these starts a new reading may have; None: no limit, as it was."""
        ended, self._ended = self._ended, 0
        return None if starts is None else min(starts, max(1, SHARE * workers) + ended)


class Pace:
    """Spreads so many starts over `interval` seconds; 0: all at once.

    A bucket that fills at an even rate; what it holds at most may start at once.
    """

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._rate = 0.0
        self._due: float = FEW
        self._filled_at = -math.inf

    def begin(self, starts: float, now: float) -> None:
        """A new reading allows so many."""
        self._fill(now)
        self._rate = starts / self._interval if self._interval else math.inf

    def due(self, now: float) -> int | None:
        """How many may start now; None: any number."""
        if self._rate == math.inf:
            return None
        self._fill(now)
        return max(0, math.floor(self._due))

    def take(self, now: float) -> None:
        """One starts now."""
        self._fill(now)
        self._due = max(0.0, self._due - 1)

    def give_back(self) -> None:
        """One did not start after all."""
        self._due += 1

    def wait(self) -> float:
        """Seconds until the next is due, as seen when it was last asked, or the next reading is."""
        soon = max(TICK, (1 - self._due) / self._rate) if self._rate else self._interval
        return min(soon, self._interval)

    def _fill(self, now: float) -> None:
        most = FEW if self._rate in (0, math.inf) else max(FEW, 2 * TICK * self._rate)
        gained = (now - self._filled_at) * self._rate if self._rate else 0.0
        self._due = min(most, self._due + gained)
        self._filled_at = now
