"""What this process holds under lease, where each delivery stands, and how to interrupt one.

A delivery is in exactly one phase at a time; the phase is what the gauges show. The worker moves
its own delivery on; the lease keeper, the cancellation watch and the drain only interrupt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Set
from enum import Enum, StrEnum, auto
from typing import Any, Protocol

from async_processor.transport.base import Delivery


class Phase(StrEnum):
    """Where a held delivery stands."""

    QUEUED = "queued"
    PARKED = "parked"
    IN_FLIGHT = "in_flight"
    SETTLING = "settling"


class Interruption(Enum):
    """Why a delivery is cut off before its own end."""

    CANCELLED = auto()
    LEASE_LOST = auto()
    DRAINED = auto()
    TICKET_LOST = auto()
    YIELDED = auto()


class PhaseGauges(Protocol):
    """Shows how many deliveries of a queue are in each phase."""

    def moved(self, before: Phase | None, after: Phase | None) -> None: ...


class Held:
    """One delivery of this process. Written by its worker alone, but for `interrupt`."""

    __slots__ = (
        "_gauges",
        "_task",
        "claimed_at",
        "delivery",
        "interruption",
        "phase",
        "started_at",
    )

    def __init__(self, delivery: Delivery, gauges: PhaseGauges, *, claimed_at: float) -> None:
        self.delivery = delivery
        self.claimed_at = claimed_at
        """Monotonic seconds."""
        self.started_at: float | None = None
        """Monotonic seconds of the dispatch; None until then."""
        self.phase = Phase.QUEUED
        self.interruption: Interruption | None = None
        self._gauges = gauges
        self._task: asyncio.Task[Any] | None = None
        gauges.moved(None, Phase.QUEUED)

    def run_by(self, task: asyncio.Task[Any] | None) -> None:
        """From now on `interrupt` cancels this task; one that came earlier must be looked for."""
        self._task = task

    def cut_off(self) -> Interruption | None:
        """Why the task was cancelled, if by `interrupt`; its cancellation is then over."""
        if self.interruption is not None and self._task is not None:
            self._task.uncancel()
        return self.interruption

    def enter(self, phase: Phase) -> None:
        """Move on."""
        self._gauges.moved(self.phase, phase)
        self.phase = phase

    def left(self) -> None:
        """The delivery is settled or lost."""
        self._gauges.moved(self.phase, None)

    def interrupt(self, reason: Interruption) -> None:
        """Cut the delivery off, once, unless its outcome is already being written."""
        if self.phase is Phase.SETTLING or self.interruption is not None:
            return
        self.interruption = reason
        if self._task is not None:
            self._task.cancel()


class Holdings:
    """Every delivery that this process holds, by claim token."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}
        self._empty = asyncio.Event()
        self._empty.set()

    def __iter__(self) -> Iterator[Held]:
        return iter(tuple(self._held.values()))

    def __len__(self) -> int:
        return len(self._held)

    def add(self, held: Held) -> None:
        """Hold a delivery; its token is nobody else's."""
        if held.delivery.token in self._held:
            raise ValueError(f"two claims share the token {held.delivery.token!r}")
        self._held[held.delivery.token] = held
        self._empty.clear()

    def remove(self, held: Held) -> None:
        del self._held[held.delivery.token]
        held.left()
        if not self._held:
            self._empty.set()

    def count(self, phase: Phase, queue_names: Set[str]) -> int:
        """How many deliveries of these queues are in the phase."""
        return sum(held.phase is phase and held.delivery.queue_name in queue_names for held in self)

    def by_token(self, token: str) -> Held | None:
        return self._held.get(token)

    async def empty(self) -> None:
        """Wait until nothing is held."""
        await self._empty.wait()
