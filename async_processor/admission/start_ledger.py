"""How many requests may start on a reading that several gates go by. No clock, no waiting.

A reading says how much room there was, so it allows so many starts until the next one. What holds:

* A request that starts counts against the reading of all gates over the source, whichever of them
  let it through; and it counts once, also when it has to pass several of them.
* Each gate has an allowance of its own: a request passes if fewer than that have started before it.
* Starts that a reading cannot know of count against it: those since it was taken, also from before
  it arrived, and those from shortly before, as far as its source lags behind.
* A fraction that is left over is added to the next reading's, so that a small budget is slow and
  not zero; in the long run as many start as was allowed. Whole starts that nobody wanted lapse:
  what is carried over is always less than one, so idleness builds no burst.
* A start that did not happen is given back to the reading that it counts against. When that one is
  over it is too late: what comes after goes by newer readings.
* A reading that allows 0 lets nothing start. The fraction (less than one start) outlives it, so
  that a budget that flickers around 0 is slow as well.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from operator import attrgetter
from weakref import WeakSet

from async_processor.admission.limits import PARTS
from async_processor.admission.pace import Pace
from async_processor.listeners import Leave, Listeners

_number = attrgetter("number")


class Start:
    """A request that has started or is about to; written by its ledger.

    `at`, in the seconds of readings, is when the latest gate let it through, and `gap` by how many
    of them the pace put the next one off. Earlier starts have smaller numbers.
    """

    __slots__ = ("ahead_of", "at", "gap", "number", "ran", "request", "shed", "tickets")

    def __init__(self, request: object, number: int) -> None:
        self.request: object = request
        self.number = number
        self.at = -math.inf
        self.gap = 0.0
        self.tickets = 0
        """How many of those that it passed have not heard its end."""
        self.ran = False
        self.shed = False
        self.ahead_of = ""
        """The pool whose own gate it has yet to pass."""


class StartLedger:
    """What has started since a source was last read, through all gates over it."""

    def __init__(self) -> None:
        self._allowances: WeakSet[StartAllowance] = WeakSet()
        self._reading: object = None
        self._starts: list[Start] = []
        """Those that the reading cannot know of, in the order of their numbers."""
        self._open: dict[int, Start] = {}
        """Those among them whose request has not ended, by the identity of the request."""
        self._ahead: Counter[str] = Counter()
        self.number = 0
        """Of the last start there was."""
        self.pace = Pace()

    @property
    def count(self) -> int:
        """How many have started since the reading."""
        return len(self._starts)

    def join(self, allowance: StartAllowance) -> None:
        """One more gate goes by the source."""
        self._allowances.add(allowance)

    def turn_to(self, reading: object, knows_until: float) -> None:
        """What started before then (seconds) is in this reading, if it is a new one."""
        if reading is self._reading:
            return
        self._reading = reading
        self.pace.turn()
        for allowance in self._allowances:
            allowance.close()
        for start in self._starts:
            if start.at < knows_until:
                self._leave(start)
        self._starts = [start for start in self._starts if start.at >= knows_until]

    def find(self, request: object) -> Start | None:
        """The start of a request that another gate has let through."""
        return self._open.get(id(request))

    def before(self, start: Start | None) -> int:
        """How many have started before this one, or before one that is yet to come."""
        return self.count if start is None else self._position(start)

    def ahead_of(self, pool: str) -> int:
        """How many have yet to pass the gate of a pool."""
        return self._ahead[pool]

    def add(self, request: object) -> Start:
        """A request starts that has not started yet."""
        self.number += 1
        self.pace.started()
        start = Start(request, self.number)
        self._starts.append(start)
        self._open[id(request)] = start
        return start

    def passes(self, start: Start, now: float, *, ahead_of: str) -> None:
        """A gate lets a request through now (seconds); `ahead_of` is the pool whose gate it comes
        to later."""
        start.at = now
        start.tickets += 1
        self._stands_ahead_of(start, ahead_of)

    def shed(self, start: Start) -> None:
        """The pool refused it, being full; each gate that it passed hears so."""
        if not start.shed:
            start.shed = True
            self.pace.shed()

    def end(self, start: Start, *, ran: bool) -> None:
        """One of the gates that it passed hears its end; without one that says it ran, it never
        started."""
        start.tickets -= 1
        start.ran |= ran
        if start.tickets:
            return
        if start.ran:
            self.pace.ended()
        else:
            self.pace.undone(start.gap)
            self._undo(start)
        self._forget(start)

    def _undo(self, start: Start) -> None:
        position = self._position(start)
        if self._starts[position : position + 1] != [start]:
            return
        self._leave(start)
        del self._starts[position]
        for allowance in tuple(self._allowances):
            allowance.made_room(start)

    def _leave(self, start: Start) -> None:
        """It does not count any more, or never did."""
        self._forget(start)
        self._stands_ahead_of(start, "")

    def _forget(self, start: Start) -> None:
        """Whatever its request does from now on is another start."""
        if self._open.get(id(start.request)) is start:
            del self._open[id(start.request)]
        start.request = None

    def _stands_ahead_of(self, start: Start, pool: str) -> None:
        self._ahead[start.ahead_of] -= 1
        self._ahead[pool] += 1
        start.ahead_of = pool

    def _position(self, start: Start) -> int:
        return bisect_left(self._starts, start.number, key=_number)


class StartAllowance:
    """What one gate lets start on the readings of its source, less what starts through any gate.

    The gate is the one of the pool `pool` itself (`last`), or comes before that one.
    """

    def __init__(self, ledger: StartLedger, *, pool: str = "", last: bool = False) -> None:
        self._ledger = ledger
        self._pool = pool
        self._last = last
        self._allowed: int | None = 0
        self._carried = 0
        self._held_back_at = 0
        """The number of the latest start that stood in the way of a request."""
        self._wakes = Listeners[[]]()
        ledger.join(self)

    def subscribe(self, wake: Callable[[], None]) -> Leave:
        """Call `wake` when what was held back may start, because another did not after all."""
        return self._wakes.add(wake)

    def allow(self, starts: float | None, *, reading: object, knows_until: float) -> None:
        """The reading allows this many starts; None: any number. Those before then (seconds) are
        in it.

        It may be said again, and otherwise, of the same reading.
        """
        self._ledger.turn_to(reading, knows_until)
        self._allowed = None if starts is None else round(starts * PARTS)

    @property
    def pace(self) -> Pace:
        """That of all that starts through any gate."""
        return self._ledger.pace

    @property
    def ahead(self) -> int:
        """How many have started, by another gate over the source, that are yet to pass this one."""
        return self._ledger.ahead_of(self._pool) if self._last else 0

    def has(self, request: object) -> bool:
        """Whether another gate over the source has let the request through."""
        return self._ledger.find(request) is not None

    def available(self) -> int | None:
        """How many may start now on top of those that this gate let through; None: any number."""
        whole = self._whole()
        return None if whole is None else max(0, whole - self._ledger.count + self.ahead)

    def take(self, request: object, now: float) -> Start | None:
        """The request starts now (seconds), if it may."""
        ledger, whole = self._ledger, self._whole()
        start = ledger.find(request)
        if whole is not None and ledger.before(start) >= whole:
            number = ledger.number if start is None else start.number - 1
            self._held_back_at = max(self._held_back_at, number)
            return None
        start = start or ledger.add(request)
        ledger.passes(start, now, ahead_of="" if self._last else self._pool)
        return start

    def shed(self, start: Start) -> None:
        """What was taken was refused by the pool, being full."""
        self._ledger.shed(start)

    def release(self, start: Start) -> None:
        """What was taken ran."""
        self._ledger.end(start, ran=True)

    def refund(self, start: Start) -> None:
        """What was taken did not start after all."""
        self._ledger.end(start, ran=False)

    def close(self) -> None:
        """The reading is replaced: a fraction of a start at most outlives it."""
        if self._allowed is not None:
            left = self._carried + self._allowed - self._ledger.count * PARTS
            self._carried = min(max(left, 0), PARTS - 1)
        self._allowed = 0

    def made_room(self, start: Start) -> None:
        """A start did not happen: wake whom it was in the way of."""
        if self._held_back_at >= start.number and self.available() != 0:
            self._wakes.tell()

    def _whole(self) -> int | None:
        """Of the starts since the reading, how many it allows."""
        return None if self._allowed is None else (self._carried + self._allowed) // PARTS
