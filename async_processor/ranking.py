"""Who is first by deadline, among those who may leave at any moment."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

_T = TypeVar("_T", bound=Hashable)

SLACK: Final = 8
"""Entries of those who left that may stand beside a few who stay."""


class Ranking(Generic[_T]):
    """The earliest deadline first, whoever came first among equals.

    Who leaves early is skipped when it comes up, or dropped as soon as such entries are the most,
    so that leaving costs little and keeps nothing alive.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, _T]] = []
        self._numbers: dict[_T, int] = {}
        """Of those who stay; the number tells an entry from one that was left earlier."""
        self._arrivals = itertools.count()

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, item: _T, deadline: float) -> None:
        """One comes that is not here yet; `deadline` is its rank."""
        number = next(self._arrivals)
        self._numbers[item] = number
        heapq.heappush(self._heap, (deadline, number, item))

    @property
    def earliest(self) -> float:
        """The deadline of the first; there is one."""
        return self._heap[0][0]

    def first(self) -> _T:
        """The one with the earliest deadline; there is one."""
        return self._heap[0][2]

    def discard(self, item: _T) -> bool:
        """One leaves; False when it is not here."""
        if self._numbers.pop(item, None) is None:
            return False
        if len(self._heap) > 2 * len(self._numbers) + SLACK:
            self._heap = [entry for entry in self._heap if self._stays(entry)]
            heapq.heapify(self._heap)
        while self._heap and not self._stays(self._heap[0]):
            heapq.heappop(self._heap)
        return True

    def _stays(self, entry: tuple[float, int, _T]) -> bool:
        return self._numbers.get(entry[2]) == entry[1]
