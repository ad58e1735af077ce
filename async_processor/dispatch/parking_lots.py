"""The lots of this process: one for each gate at which somebody waits, whoever it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from async_processor.admission.base import Gate
from async_processor.dispatch.parking import ParkingLot


class ParkingLots:
    """Kept over reloads: a gate that stays has the requests of both configurations in one order."""

    def __init__(self) -> None:
        self._lots: dict[Gate, ParkingLot] = {}

    @contextmanager
    def presence(self, gate: Gate) -> Iterator[ParkingLot]:
        """Be in the gate's lot, which is kept as long as anybody is: gates come and go."""
        lot = self._lots.setdefault(gate, ParkingLot(gate))
        try:
            with lot.presence():
                yield lot
        finally:
            if lot.is_empty:
                del self._lots[gate]
