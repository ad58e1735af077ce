"""What happened: executions by the inference server, and incidents that may have hit them."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

EVERYBODY: Final = ""
"""What an incident touches that touches every replica."""
_ON_ITS_WAY: Final = 1.0
"""Seconds: a call that was sent before a connection was cut may begin after it."""
_TO_SETTLE: Final = 5.0
"""Seconds: a busy process may hold an answer so long before Redis has its result."""


@dataclass(slots=True, kw_only=True)
class Execution:
    """One call as the inference server saw it; times are monotonic seconds.

    `status` is that of its whole answer; None: cut off, spoiled, or not yet ended. `in_bad_days`:
    the server spoiled answers on purpose when it began.
    """

    request_id: str
    replica: str
    began: float
    ended: float = math.inf
    status: int | None = None
    in_bad_days: bool = False

    @property
    def refused(self) -> bool:
        """Whether what the server did with it asks for another attempt."""
        if self.status is None:
            return self.in_bad_days
        return self.status != 200


Pair = tuple[Execution, Execution]


@dataclass(frozen=True, slots=True, kw_only=True)
class Blow:
    """When a fault may have robbed a call of its result: once in any request's life."""

    touches: str
    began: float
    ended: float

    def explains(self, first: Execution, second: Execution) -> bool:
        """Whether it struck the first, where and while that ran, and before the second."""
        if self.touches not in (EVERYBODY, first.replica):
            return False
        in_time = self.began <= min(second.began, first.ended + _TO_SETTLE)
        return in_time and self.ended + _ON_ITS_WAY >= first.began


@dataclass(slots=True, kw_only=True)
class Incident:
    """A fault that was injected; times are monotonic seconds.

    `deaths` are the moments at which it ended a process without warning.
    """

    fault: str
    touches: str
    began: float
    ended: float = math.inf
    deaths: list[float] = field(default_factory=list)

    @property
    def blows(self) -> list[Blow]:
        """Each death; else it is one blow from its beginning to its end."""
        moments = [(at, at) for at in self.deaths] or [(self.began, self.ended)]
        return [Blow(touches=self.touches, began=began, ended=ended) for began, ended in moments]

    def struck(self, call: Execution) -> bool:
        """Whether the call ran where and when it struck."""
        if self.touches not in (EVERYBODY, call.replica):
            return False
        return self.began <= call.ended and self.ended >= call.began


@dataclass(slots=True)
class Ledger:
    """Written by the gateway and by whoever injects faults, read for the verdict."""

    executions: dict[str, list[Execution]] = field(default_factory=lambda: defaultdict(list))
    incidents: list[Incident] = field(default_factory=list)
    _running: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def execution(self, request_id: str, replica: str) -> Iterator[Execution]:
        """Keeps one call from its beginning to its end."""
        call = Execution(request_id=request_id, replica=replica, began=time.monotonic())
        self.executions[request_id].append(call)
        self._running[replica] += 1
        try:
            yield call
        finally:
            self._running[replica] -= 1
            call.ended = time.monotonic()

    @contextmanager
    def incident(self, fault: str, touches: str = EVERYBODY) -> Iterator[Incident]:
        """Keeps one fault from its beginning to its end."""
        incident = Incident(fault=fault, touches=touches, began=time.monotonic())
        self.incidents.append(incident)
        try:
            yield incident
        finally:
            incident.ended = time.monotonic()

    def struck(self, incidents: Iterable[Incident]) -> set[str]:
        """The requests whose calls ran where and when one of these faults struck."""
        return {
            call.request_id
            for incident in incidents
            for calls in self.executions.values()
            for call in calls
            if incident.struck(call)
        }

    def running(self, touches: str) -> bool:
        """Whether a call runs that an incident would strike now."""
        return bool(self._running.total() if touches == EVERYBODY else self._running[touches])

    @property
    def calls(self) -> int:
        """How many executions there were."""
        return sum(map(len, self.executions.values()))

    def repeated(self) -> list[str]:
        """The requests that were executed more than once."""
        return [request_id for request_id, calls in self.executions.items() if len(calls) > 1]

    def unexplained(self) -> list[Pair]:
        """Pairs of executions of one request of which nothing says why there is a second."""
        blows = [blow for incident in self.incidents for blow in incident.blows]
        return [
            pair
            for request_id in self.repeated()
            for pair in _without_reason(self.executions[request_id], blows)
        ]


def _without_reason(calls: Sequence[Execution], blows: Sequence[Blow]) -> list[Pair]:
    """What is left when as many pairs as can be have a blow each, and no blow has two."""
    pairs = [(first, second) for first, second in pairwise(calls) if not first.refused]
    given: dict[int, Pair] = {}

    def give(pair: Pair, asked: set[int]) -> bool:
        for number, blow in enumerate(blows):
            if number not in asked and blow.explains(*pair):
                asked.add(number)
                if number not in given or give(given[number], asked):
                    given[number] = pair
                    return True
        return False

    return [pair for pair in pairs if not give(pair, set())]
