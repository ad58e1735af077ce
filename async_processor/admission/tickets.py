"""Reservations that end exactly once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from async_processor.admission.base import Ticket


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

    def release(self) -> None:
        self._end(self._on_release)

    def refund(self) -> None:
        self._end(self._on_refund)

    def _end(self, end: Callable[[], None]) -> None:
        self._on_release = self._on_refund = _nothing
        end()


HOLDS_NOTHING: Final = LocalTicket()
"""For gates that reserve nothing."""


def end_all(tickets: list[Ticket], *, used: bool) -> None:
    """Take all out and end them, the last first; one that fails does not keep the others."""
    if not tickets:
        return
    ticket = tickets.pop()
    try:
        ticket.release() if used else ticket.refund()
    finally:
        end_all(tickets, used=used)
