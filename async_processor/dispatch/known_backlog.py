"""What this process last knew of the work that lies in the broker for a queue."""

from __future__ import annotations


class KnownBacklog:
    """`queued` is written by the queue's intake, whenever it looks, and by the backlog poll;
    `parked` by the poll alone."""

    def __init__(self) -> None:
        self.queued = False
        """Whether the queue itself holds a message."""
        self.parked = False
        """Whether one waits in a lot."""

    @property
    def is_empty(self) -> bool:
        return not (self.queued or self.parked)
