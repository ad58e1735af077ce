"""Gates: how much may start now, and whether this message may.

Three parts, kept apart: estimating (a sensor and a limit), enforcing (a gate) and reporting (the
ticket, which says how the admitted work ended). A queue's gate runs at admission; a pool's gate
runs before dispatch and may park a request.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

import msgspec

from async_processor.wire.envelope import Envelope


class Reason(StrEnum):
    """Why a gate did not let a message through; the label of `gate_decisions_total`."""

    GATE_CLOSED = "gate_closed"
    QUOTA_EXHAUSTED = "quota_exhausted"
    DROPPED = "dropped"
    ERROR = "error"


class Ticket(Protocol):
    """A reservation. Exactly one of the two ends it; the second call does nothing."""

    async def release(self) -> None:
        """The admitted work ran; what it held is free again."""
        ...

    async def refund(self) -> None:
        """The admitted work never started; as if it had not been admitted.

        Wakes others only if the gate held somebody back meanwhile: otherwise two requests that
        another gate refuses would wake each other for ever.
        """
        ...


class Continue(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Go on, holding this reservation."""

    ticket: Ticket


class Refuse(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Back to the broker."""

    reason: Reason
    message: str


class Wait(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Stay in memory, and ask again when the gate changes."""

    reason: Reason
    message: str


class Drop(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """End with a final result."""

    message: str


Verdict = Continue | Refuse | Wait | Drop


class GateState(msgspec.Struct, frozen=True, kw_only=True):
    """What a gate can tell an operator; values None where the gate has no such thing.

    `available` says whether the gate's source can be read; `value` and `threshold` are those of
    `gate_metric_value` and `gate_metric_threshold`; `age` is the reading's, in seconds.
    """

    type: str
    budget: float
    available: bool = True
    value: float | None = None
    threshold: float | None = None
    age: float | None = None
    pool: str = ""
    reason: str = ""


class Gate(Protocol):
    """Enforces a limit. Nothing here waits for a source: gates look at the latest reading."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def budget(self) -> float:
        """The share of the pool, in [0, 1], that may be used now."""
        ...

    def permits(self, workers: int) -> int:
        """How many of a pool's `workers` may start now on top of what was admitted; never < 0."""
        ...

    async def admit(self, envelope: Envelope) -> Verdict:
        """Decide about one message and reserve what it needs."""
        ...

    def subscribe(self, wake: Callable[[], None]) -> None:
        """Call `wake` whenever more may start than before."""
        ...

    def state(self) -> GateState:
        """For metrics and `status`."""
        ...
