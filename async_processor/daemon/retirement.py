"""Stops gates that a reload has replaced, when the last request that may hold a ticket of one has
ended."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from async_processor.admission.base import Gate
from async_processor.clock import Clock
from async_processor.settlement.held import Held, Holdings

INTERVAL: Final = 1.0
"""Seconds between two looks at what is still held."""


class Retirement:
    """The gates that have been replaced and not stopped yet."""

    def __init__(self, holdings: Holdings, clock: Clock) -> None:
        self._holdings = holdings
        self._clock = clock
        self._retired: list[tuple[Gate, frozenset[Held]]] = []

    def __len__(self) -> int:
        return len(self._retired)

    def add(self, gates: Iterable[Gate]) -> None:
        """From now on nobody asks these gates any more."""
        held = frozenset(self._holdings)
        self._retired += [(gate, held) for gate in gates]

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self._clock.sleep(INTERVAL)
            held = frozenset(self._holdings)
            await self._stop([pair for pair in self._retired if not pair[1] & held])

    async def stop(self) -> None:
        """Stop them all."""
        await self._stop(tuple(self._retired))

    async def _stop(self, retired: Iterable[tuple[Gate, frozenset[Held]]]) -> None:
        for pair in retired:
            await pair[0].stop()
            self._retired.remove(pair)
