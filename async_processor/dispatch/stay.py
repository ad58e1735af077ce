"""One delivery's stay in this process: what belongs to it, from the claim to the settlement."""

from __future__ import annotations

from async_processor.admission.base import Candidate, Continue, Ticket
from async_processor.admission.tickets import end_all
from async_processor.dispatch.route import Route
from async_processor.dispatch.seat import Seat
from async_processor.settlement.held import Held, Interruption
from async_processor.wire.envelope import Envelope


class Stay:
    """Written by the delivery's worker alone.

    `cancelled` says that its sender had cancelled it when it was claimed.
    """

    __slots__ = ("_ended", "_tickets", "cancelled", "held", "lane", "lot", "route", "seat")

    def __init__(self, held: Held, route: Route, seat: Seat, *, cancelled: bool) -> None:
        self.held = held
        self.route = route
        self.seat = seat
        self.cancelled = cancelled
        self.lane = 0
        """The lane of the pool's merge policy."""
        self.lot = ""
        """Where the queue's gate would let the request wait, were there no room for it here."""
        self._tickets: list[Ticket] = []
        self._ended: tuple[Ticket, ...] = ()
        """Those that the request had to the end of its stay."""

    @property
    def envelope(self) -> Envelope:
        """The message; triage has ended the stays of those that could not be read."""
        assert isinstance(self.held.delivery.message, Envelope)  # noqa: S101
        return self.held.delivery.message

    def admitted(self, candidate: Candidate, by: Continue) -> Candidate:
        """A gate let the request through: keep its ticket; returns what later gates see."""
        by.ticket.on_loss(self._ticket_lost)
        self._tickets.append(by.ticket)
        self.lot = by.lot or self.lot
        return candidate.classified(by.classification)

    def shed(self) -> None:
        """Tell the gates that the pool is full."""
        for ticket in self._tickets:
            ticket.shed()

    def refund(self) -> None:
        """Give back what the gates reserved, as if they had not been asked yet."""
        end_all(self._tickets, used=False)

    def end_tickets(self) -> None:
        """Give back what the gates reserved."""
        self._ended = tuple(self._tickets)
        end_all(self._tickets, used=self.held.started_at is not None)

    def settled(self) -> None:
        """Tell the gates that the request has its result."""
        for ticket in self._ended:
            ticket.settled()

    def _ticket_lost(self) -> None:
        self.held.interrupt(Interruption.TICKET_LOST)
