"""What happened: executions by the inference server, and incidents that may have hit them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

EVERYBODY: Final = ""
"""What an incident touches that touches every replica."""


@dataclass(slots=True, kw_only=True)
class Execution:
    """One call as the inference server saw it; times are monotonic seconds.

    `status` is that of its whole answer; None: cut off, spoiled, or not yet ended.
    """

    request_id: str
    replica: str
    began: float
    ended: float | None = None
    status: int | None = None

    @property
    def refused(self) -> bool:
        """Whether the server's own answer asks for another attempt."""
        return self.status is not None and self.status != 200


@dataclass(slots=True, kw_only=True)
class Incident:
    """A fault that was injected; `interrupted` are the requests that ran where it struck."""

    fault: str
    touches: str
    began: float
    ended: float | None = None
    interrupted: frozenset[str] = frozenset()

    def explains(self, first: Execution, second: Execution) -> bool:
        """Whether the second execution may be due to it."""
        if self.touches not in (EVERYBODY, first.replica, second.replica):
            return False
        return self.began <= second.began and (self.ended is None or self.ended >= first.began)


@dataclass(slots=True)
class Ledger:
    """Written by the gateway and by whoever injects faults, read for the verdict."""

    executions: dict[str, list[Execution]] = field(default_factory=lambda: defaultdict(list))
    incidents: list[Incident] = field(default_factory=list)
    _open: dict[int, Execution] = field(default_factory=dict)

    @contextmanager
    def execution(self, request_id: str, replica: str) -> Iterator[Execution]:
        """Keeps one call from its beginning to its end."""
        call = Execution(request_id=request_id, replica=replica, began=time.monotonic())
        self.executions[request_id].append(call)
        self._open[id(call)] = call
        try:
            yield call
        finally:
            del self._open[id(call)]
            call.ended = time.monotonic()

    @contextmanager
    def incident(self, fault: str, touches: str = EVERYBODY) -> Iterator[Incident]:
        """Keeps one fault from its beginning to its end."""
        incident = Incident(
            fault=fault,
            touches=touches,
            began=time.monotonic(),
            interrupted=frozenset(self.running(touches)),
        )
        self.incidents.append(incident)
        try:
            yield incident
        finally:
            incident.ended = time.monotonic()

    def running(self, replica: str = EVERYBODY) -> list[str]:
        """The requests whose calls run now, of one replica or of all."""
        return [
            call.request_id for call in self._open.values() if replica in (EVERYBODY, call.replica)
        ]

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
