"""The processes of one replica, and which of them this one is: what the replica has, be it workers,
limits or the starts of a reading, is divided among them.

A process's part never changes, also while another one is dead: it is soon followed by the next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from zlib import crc32

import msgspec

from async_processor.admission.census import ALONE, Census, Fits
from async_processor.admission.live_number import LiveNumber
from async_processor.admission.portion import Least, Portion, WorkersPortion, least
from async_processor.listeners import Leave, nobody_tells


class Crew(msgspec.Struct, frozen=True, kw_only=True):
    """`rank` is in [0, processes)."""

    processes: int = 1
    rank: int = 0

    @property
    def is_one(self) -> bool:
        """Whether this process is the whole replica."""
        return self.processes == 1

    def portion(self, pool: str) -> Portion:
        """This process's part of what can be counted; what small pools have is spread over all."""
        return Portion(
            replicas=self.processes, rank=(self.rank - crc32(pool.encode())) % self.processes
        )

    def census(self, pool: str, workers: LiveNumber) -> Census:
        """What a gate over the workers of a pool is divided by."""
        return ALONE if self.is_one else _CrewCensus(self.portion(pool), workers)


ONE_PROCESS: Final = Crew()


class _CrewCensus:
    """Changes with the workers alone, to which gates listen anyway."""

    def __init__(self, portion: Portion, workers: LiveNumber) -> None:
        self._portion = portion
        self._workers = workers

    def portion(self) -> Portion:
        """Starts are for workers, and so follow them."""
        return WorkersPortion(
            replicas=self._portion.replicas, rank=self._portion.rank, workers=self._workers.value
        )

    def subscribe(self, changed: Callable[[], None]) -> Leave:  # noqa: ARG002
        """Nothing changes that gates do not hear of."""
        return nobody_tells

    def in_flight(self) -> Least:
        return least(self._portion)

    def divide(self, changed: Callable[[], None], fits: Fits) -> Leave:  # noqa: ARG002
        """Nothing changes that gates do not hear of."""
        return nobody_tells
