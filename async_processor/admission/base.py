"""Gates: how much may start now, and whether this message may.

Three parts, kept apart: estimating (a sensor and a limit), enforcing (a gate) and reporting (the
ticket, which says how the admitted work ended). A queue's gate runs at admission; a pool's gate
runs before dispatch and may park a request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from async_processor.listeners import Leave, nobody_tells
from async_processor.wire.envelope import Envelope


class Reason(StrEnum):
    """Why a gate did not let a message through; the label of `gate_decisions_total`."""

    GATE_CLOSED = "gate_closed"
    QUOTA_EXHAUSTED = "quota_exhausted"
    DROPPED = "dropped"
    ERROR = "error"


class Classification(StrEnum):
    """Whether a tenant's quota covers a request; empty where no quota has looked at it."""

    NONE = ""
    RESERVED = "reserved"
    OVERFLOW = "overflow"


OVERFLOW_LOT: Final = "overflow "
"""What the names of lots begin with whose messages may come back without room at their gate."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A request as gates see it: `labels` are its queue's, `classification` an earlier gate's."""

    envelope: Envelope
    labels: Mapping[str, str] = {}
    classification: Classification = Classification.NONE

    def classified(self, classification: Classification) -> Candidate:
        """The candidate after a gate that says this of it; NONE says nothing."""
        if classification is Classification.NONE:
            return self
        return msgspec.structs.replace(self, classification=classification)


class Ticket(Protocol):
    """A reservation. Exactly one of `release` and `refund` ends it; a second call does nothing.

    Only `settled` may follow. Nothing here waits: where a broker counts, it hears of the end later.
    """

    def release(self) -> None:
        """The admitted work ran; what it held is free again."""
        ...

    def refund(self) -> None:
        """The admitted work never started; as if it had not been admitted.

        Wakes others only if the gate held somebody back meanwhile: otherwise two requests that
        another gate refuses would wake each other for ever.
        """
        ...

    def settled(self) -> None:
        """The request has its result: what is remembered for its next attempt can go."""
        ...

    def shed(self) -> None:
        """The pool refused the admitted work because it is full. Comes before `release`."""
        ...

    def on_loss(self, cut_off: Callable[[], None]) -> None:
        """Call `cut_off` when the reservation cannot be kept any longer: the work must end now."""
        ...


class Continue(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Go on, holding this reservation; a classification, if given, replaces the earlier one.

    `lot` is where the message may wait, as if refused, when its pool has no place for it.
    """

    ticket: Ticket
    classification: Classification = Classification.NONE
    lot: str = ""


class Refuse(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Back to the broker.

    With a `lot` the message waits there, apart from its queue, until the gate has room for that
    lot (one tenant's, say) again, so that it does not stand in the way of others.
    """

    reason: Reason
    message: str
    lot: str = ""


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

    async def admit(self, candidate: Candidate) -> Verdict:
        """Decide about one message and reserve what it needs."""
        ...

    def subscribe(self, wake: Callable[[], None]) -> Leave:
        """Call `wake` whenever more may start than before, until what is returned is called."""
        ...

    async def room(self, lot: str) -> int | None:
        """How many that were refused into a lot may come back; None: the lot is another gate's."""
        ...

    def on_room(self, recall: Callable[[str], None]) -> Leave:
        """Call `recall` with a lot whenever this process has made room in it, likewise."""
        ...

    def state(self) -> GateState:
        """For metrics and `status`."""
        ...


class WithoutLots:
    """For gates that refuse into no lot."""

    async def room(self, lot: str) -> int | None:  # noqa: ARG002
        """No lot is this gate's."""
        return None

    def on_room(self, recall: Callable[[str], None]) -> Leave:  # noqa: ARG002
        """There is never room to tell of."""
        return nobody_tells
