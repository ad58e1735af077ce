"""Poison drags its neighbours down: whatever runs when a process dies counts one delivery.

A message that was delivered twice without an outcome is a suspect, and suspects run one at a time
in a replica, so that only the culprit reaches the limit of deliveries.
"""

from __future__ import annotations


class Suspects:
    """Room for one suspect in this replica."""

    def __init__(self) -> None:
        self._taken = False

    def take(self) -> bool:
        """Take the room if it is free."""
        taken, self._taken = self._taken, True
        return not taken

    def leave(self) -> None:
        self._taken = False
