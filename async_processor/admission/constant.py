"""The gate that is always open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from async_processor.admission.base import Candidate, Continue, GateState, Verdict, WithoutLots
from async_processor.admission.tickets import HOLDS_NOTHING

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

    def subscribe(self, wake: Callable[[], None]) -> None:
        """Never wakes: there is never more than before."""

    def state(self) -> GateState:
        return GateState(type="constant", budget=1.0)
