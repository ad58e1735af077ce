"""Reservations that end exactly once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final


def _nothing() -> None:
    """What ending a ticket does that holds nothing."""


class LocalTicket:
    """A reservation in this process; ends by calling back, once."""

    __slots__ = ("_on_refund", "_on_release", "_on_shed")

    def __init__(
        self,
        *,
        on_release: Callable[[], None] = _nothing,
        on_refund: Callable[[], None] = _nothing,
        on_shed: Callable[[], None] = _nothing,
    ) -> None:
        self._on_release = on_release
        self._on_refund = on_refund
        self._on_shed = on_shed

    def shed(self) -> None:
        self._on_shed()

    def settled(self) -> None:
        """Nothing is remembered of whom it was given to."""

    def on_loss(self, cut_off: Callable[[], None]) -> None:
        """What this process holds by itself is never lost."""

    async def release(self) -> None:
        self._end(self._on_release)

    async def refund(self) -> None:
        self._end(self._on_refund)

    def _end(self, end: Callable[[], None]) -> None:
        self._on_release = self._on_refund = _nothing
        end()


HOLDS_NOTHING: Final = LocalTicket()
"""For gates that reserve nothing."""
