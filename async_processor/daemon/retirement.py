"""Stops gates that a reload has replaced, when the last request that may hold a ticket of one has
ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

import msgspec

from async_processor.admission.base import Gate
from async_processor.clock import Clock
from async_processor.settlement.held import Holdings

INTERVAL: Final = 1.0
"""Seconds between two looks at what is still held."""


class Retired(msgspec.Struct, frozen=True, eq=False):
    """A gate that nobody asks any more, and the claims that may still hold its tickets."""

    gate: Gate
    claims: frozenset[str]


class Retirement:
    """The gates that have been replaced and not stopped yet."""

    def __init__(self, holdings: Holdings, clock: Clock) -> None:
        self._holdings = holdings
        self._clock = clock
        self._askers: defaultdict[Gate, set[str]] = defaultdict(set)
        """By name all queues that have ever asked a gate: one may have moved to another pool."""
        self._retired: list[Retired] = []

    def __len__(self) -> int:
        return len(self._retired)

    def asks(self, queue_name: str, gates: Iterable[Gate]) -> None:
        """From now on a queue's requests ask these gates."""
        for gate in gates:
            self._askers[gate].add(queue_name)

    def add(self, gates: Iterable[Gate]) -> None:
        """From now on nobody asks these gates any more."""
        for gate in gates:
            queue_names = self._askers.pop(gate, ())
            held = (each.delivery for each in self._holdings)
            claims = frozenset(each.token for each in held if each.queue_name in queue_names)
            self._retired.append(Retired(gate, claims))

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self._clock.sleep(INTERVAL)
            await self._stop([each for each in self._retired if not self._any_held(each.claims)])

    def _any_held(self, claims: Iterable[str]) -> bool:
        return any(self._holdings.by_token(claim) is not None for claim in claims)

    async def stop(self) -> None:
        """Stop them all."""
        await self._stop(tuple(self._retired))

    async def _stop(self, retired: Iterable[Retired]) -> None:
        for each in retired:
            await each.gate.stop()
            self._retired.remove(each)
