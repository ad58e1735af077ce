"""Which gates of one configuration stay in the next, which are made, and which are replaced.

A gate stays where all that it was made from is the same; its pool's size is no part of that, since
gates follow it.
"""

from __future__ import annotations

from collections.abc import Mapping

from async_processor.admission.base import Gate
from async_processor.admission.live_number import LiveNumber
from async_processor.daemon.workshop import Blueprint, Place, Workshop


class Succession:
    """From the gates that stand now to those of the configuration that comes `after`.

    `sizes` are those of the pools that there are; it adds those of new ones.
    """

    def __init__(
        self,
        standing: Mapping[Place, Gate],
        before: Mapping[Place, Blueprint],
        after: Workshop,
        sizes: Mapping[str, LiveNumber],
    ) -> None:
        self.sizes = {
            pool.id: sizes.get(pool.id) or LiveNumber(pool.workers)
            for pool in after.settings.worker_pools
        }
        self._after = after
        self._kept = {
            place: standing[place]
            for place, blueprint in after.blueprints.items()
            if before.get(place) == blueprint
        }
        self.gates: Mapping[Place, Gate] = {
            place: self._kept.get(place) or self._made(place) for place in after.blueprints
        }

    def _made(self, place: Place) -> Gate:
        return self._after.gate(place, self.sizes[self._after.blueprints[place].pool])

    def stays(self, place: Place) -> bool:
        """Whether the gate of a place is the one that stands there now."""
        return place in self._kept

    def new(self) -> list[Gate]:
        """The gates that were made."""
        return [gate for place, gate in self.gates.items() if not self.stays(place)]
