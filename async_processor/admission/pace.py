"""How soon what a reading allows may start. Pure: time and counts are passed in.

What a pool takes on shows late: a reading is old when it arrives, a request that has just started
holds little of the cache yet, and many that come at once stand in line, which looks like saturation
and is answered with 429. So that a pool fills up to its threshold and not beyond, what runs grows
by steps from reading to reading, and the starts of one reading are spread over the time until the
next. Both only ever hold back what a reading allows.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

FEW: Final = 8
"""So many more a pool bears at any time, and even all at once."""

SHARE: Final = 0.05
"""Of the workers: by so many more may run at each reading; an idle pool fills within twenty."""

CAUTION: Final = 0.25
"""Of such a step, when the pool looks as if it could take no more of ours. It may be others' work
that fills it, so that a few more hardly show."""

TICK: Final = 0.02
"""Seconds at least between two wake-ups for starts that have become due."""

_ROUNDING: Final = 1e-9


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """Until the next reading: at most `most` run, and starts lie `gap` seconds apart."""

    most: float
    gap: float

    @property
    def tick(self) -> float:
        """Seconds after which it is worth looking whether more are due."""
        return max(TICK, self.gap)


class Pace:
    """What runs on the readings of one source, and when the next may start.

    Starts are spread by the virtual scheduling of the generic cell rate algorithm (ITU-T I.371):
    each moves the moment at which the next would be due on by one gap, and a few may be early.
    Written by the ledger of the source, which knows what starts and ends.
    """

    def __init__(self) -> None:
        self.running = 0
        self._ran_before = 0
        """At the reading before the last one."""
        self._ran = 0
        """At the last reading."""
        self._ended = 0
        """Since the last reading."""
        self._ended_between = 0
        """Between the last reading and the one before."""
        self._cap = math.inf
        """No more may run before the next reading, for with so many the pool was full."""
        self._next_due = -math.inf

    def turn(self) -> None:
        """There is a new reading."""
        self._ran_before, self._ran = self._ran, self.running
        self._ended_between, self._ended = self._ended, 0
        self._cap = math.inf

    def started(self) -> None:
        """One more runs."""
        self.running += 1

    def ended(self) -> None:
        """One less runs."""
        self.running -= 1
        self._ended += 1

    def undone(self, gap: float) -> None:
        """One did not start after all, for whom the next had been put off by `gap` seconds."""
        self.running -= 1
        self._next_due -= gap

    def shed(self) -> None:
        """One of those that run, and is about to end, was refused by the pool: it is full.

        That is news that no reading has brought yet: without the others that run there is no room.
        """
        self._cap = min(self._cap, self.running - 1)
        self._ended -= 1  # the pool did not get it done, so that nothing may follow it

    def step(
        self, *, starts: float, used: float, limit: float, workers: float, interval: float
    ) -> Step:
        """What the last reading is good for, which allows so many `starts`.

        Of the pool so much is `used`, and `limit` may be; readings are `interval` seconds apart.
        """
        more = growth(
            used=used, limit=limit, before=self._ran_before, running=self._ran, workers=workers
        )
        likely = max(1.0, min(starts, more + self._ended_between))
        return Step(most=self._ran + more, gap=interval / likely)

    def room(self, step: Step, now: float) -> int:
        """How many may start now (seconds)."""
        most = math.floor(min(step.most, self._cap))
        return max(0, min(most - self.running, self.due(step, now)))

    def due(self, step: Step, now: float) -> int:
        """How many starts are due now (seconds), whether there is room for them or not."""
        early = max(FEW, 2 * TICK / step.gap)  # who is woken every tick must not fall behind
        return math.floor(early - max(0.0, self._next_due - now) / step.gap + _ROUNDING)

    def take(self, step: Step, now: float) -> float:
        """One starts now; returns by how many seconds that puts the next one off."""
        self._next_due = max(self._next_due, now) + step.gap
        return step.gap


def growth(*, used: float, limit: float, before: int, running: int, workers: float) -> float:
    """By how many more than those that are `running` may run until the next reading.

    At most all that is `used` is ours: of those that ran `before`, at the last but one reading, and
    had the time to show. So `limit / used` times as many will fit; if others used a part, more will
    fit, as the next readings will show.
    """
    step = max(FEW, SHARE * workers)
    if not before or used <= 0:
        return step
    fit = before * limit / used
    return min(step, max(CAUTION * step, fit - running))
