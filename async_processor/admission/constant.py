"""The gate that is always open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from async_processor.admission.base import Candidate, Continue, GateState, Verdict, WithoutLots
from async_processor.admission.tickets import HOLDS_NOTHING
from async_processor.listeners import Leave, nobody_tells

_CONTINUE: Final = Continue(ticket=HOLDS_NOTHING)


class ConstantGate(WithoutLots):
    """Lets everything through; the workers are the only limit."""

    async def start(self) -> None:
        """Nothing to start."""

    async def stop(self) -> None:
        """Nothing to stop."""

    def budget(self) -> float:
        return 1.0

    def permits(self, workers: int) -> int:
        return workers

    async def admit(self, candidate: Candidate) -> Verdict:  # noqa: ARG002 - all are alike
        return _CONTINUE

    def subscribe(self, wake: Callable[[], None]) -> Leave:  # noqa: ARG002
        """Never wakes: there is never more than before."""
        return nobody_tells

    def state(self) -> GateState:
        return GateState(type="constant", budget=1.0)
