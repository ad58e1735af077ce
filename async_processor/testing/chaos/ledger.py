"""What happened: executions by the inference server, and incidents that may have hit them."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

EVERYBODY: Final = ""
"""What an incident touches that touches every replica."""
_ON_ITS_WAY: Final = 1.0
"""Seconds: a call that was sent before a connection was cut may begin after it."""


@dataclass(slots=True, kw_only=True)
class Execution:
    """One call as the inference server saw it; times are monotonic seconds.

    `status` is that of its whole answer; None: cut off, spoiled, or not yet ended.
    """

    request_id: str
    replica: str
    began: float
    ended: float = math.inf
    status: int | None = None

    @property
    def refused(self) -> bool:
        """Whether the server's own answer asks for another attempt."""
        return self.status is not None and self.status != 200


@dataclass(slots=True, kw_only=True)
class Incident:
    """A fault that was injected; times are monotonic seconds."""

    fault: str
    touches: str
    began: float
    ended: float = math.inf

    def explains(self, first: Execution, second: Execution) -> bool:
        """Whether the second execution may be due to it."""
        if self.touches not in (EVERYBODY, first.replica, second.replica):
            return False
        return self.began <= second.began and self.ended + _ON_ITS_WAY >= first.began

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

    @contextmanager
    def execution(self, request_id: str, replica: str) -> Iterator[Execution]:
        """Keeps one call from its beginning to its end."""
        call = Execution(request_id=request_id, replica=replica, began=time.monotonic())
        self.executions[request_id].append(call)
        try:
            yield call
        finally:
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

    @property
    def calls(self) -> int:
        """How many executions there were."""
        return sum(map(len, self.executions.values()))

    def repeated(self) -> list[str]:
        """The requests that were executed more than once."""
        return [request_id for request_id, calls in self.executions.items() if len(calls) > 1]

    def unexplained(self) -> list[tuple[Execution, Execution]]:
        """Pairs of executions of one request of which nothing says why there is a second."""
        return [
            (first, second)
            for calls in self.executions.values()
            for first, second in pairwise(calls)
            if not first.refused
            and not any(incident.explains(first, second) for incident in self.incidents)
        ]
