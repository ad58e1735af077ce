"""Remembers what goes wrong with a queue's requests.

Calls that fail are remembered until one succeeds: a dead gateway must not go unnoticed.

The log hears of every failed call (what repeats is held back there), `/status` of the last one. A
4xx is the caller's mistake, which its own result tells; it says nothing about the gateway.
"""

from __future__ import annotations

from typing import Final

from async_processor.clock import Clock
from async_processor.settlement.decision import Category, Decision, Ending
from async_processor.telemetry.logs import get_logger

RECENT: Final = 600.0
"""Seconds after which a failure says nothing about now; longer than any wait for a retry."""

MISSED_LATELY: Final = 60.0
"""Seconds for which a deadline that has passed is told."""

_TELLING: Final = frozenset({Category.AUTH, Category.SERVER, Category.NETWORK, Category.RATE_LIMIT})


class Trouble:
    """One queue's last failing call, and its last missed deadline.

    Written by its settler, read by `/status`.
    """

    def __init__(self, clock: Clock, *, queue_id: str) -> None:
        self._clock = clock
        self._log = get_logger(__name__).bind(queue_id=queue_id)
        self._last: Decision | None = None
        self._at = 0.0
        self._missed_at: float | None = None

    def note(self, decision: Decision) -> None:
        """A stay has ended."""
        if decision.ending is Ending.SUCCEEDED:
            self._last = None
            return
        if decision.ending is Ending.EXPIRED:
            self._missed_at = self._clock.monotonic()
        if decision.fault and decision.category in _TELLING:
            self._last, self._at = decision, self._clock.monotonic()
            self._log.warning(
                "call_failed",
                category=decision.category.value,
                error=decision.fault,
                ending=decision.ending.value,
            )

    def words(self) -> str:
        """How calls fail; empty when the last one did not, or was long ago."""
        if self._last is None:
            return ""
        age = self._clock.monotonic() - self._at
        if age > RECENT:
            return ""
        return f"calls fail, the last {age:.0f} s ago: {self._last.category}: {self._last.fault}"

    def missed(self) -> str:
        """That a deadline has passed without an answer; empty when none has of late."""
        if self._missed_at is None:
            return ""
        age = self._clock.monotonic() - self._missed_at
        return f"deadlines pass, the last {age:.0f} s ago" if age <= MISSED_LATELY else ""
