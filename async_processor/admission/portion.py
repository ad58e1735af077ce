"""One replica's part of what all replicas divide among them. Pure."""

from __future__ import annotations

from typing import Final

import msgspec


class Portion(msgspec.Struct, frozen=True, kw_only=True):
    """One replica's part of a whole; `rank` is in [0, replicas). With no replica it is nothing."""

    replicas: int
    rank: int

    @property
    def is_whole(self) -> bool:
        return self.replicas == 1

    def of(self, whole: int) -> int:
        """How many of `whole`; what cannot be divided goes to the first ranks."""
        if not self.replicas:
            return 0
        each, rest = divmod(whole, self.replicas)
        return each + (self.rank < rest)

    def of_many(self, whole: int) -> int:
        """How many of so many that one more or less does not count."""
        return self.of(whole)

    def of_budget(self, budget: float) -> float:
        """The share of a budget."""
        return budget / self.replicas if self.replicas else 0.0

    def narrowed(self, other: Portion) -> Portion:
        """The narrower of the two; nothing stays nothing."""
        return other if 0 < self.replicas < other.replicas else self


class WorkersPortion(Portion, frozen=True, kw_only=True):
    """The part of one that has its part of so many `workers`, and needs no more than those can
    use."""

    workers: int

    def of_many(self, whole: int) -> int:
        return whole * self.of(self.workers) // self.workers

    def of_budget(self, budget: float) -> float:
        return budget * self.of(self.workers) / self.workers


class Least(msgspec.Struct, frozen=True):
    """The least of several portions."""

    portions: frozenset[Portion]

    @property
    def is_whole(self) -> bool:
        return all(portion.is_whole for portion in self.portions)

    def of(self, whole: int) -> int:
        """How many of `whole`."""
        return min(portion.of(whole) for portion in self.portions)

    def narrowed(self, other: Portion) -> Least:
        """The least of these and another one; nothing stays nothing."""
        return self if NOTHING in self.portions else Least(self.portions | {other})


def least(*portions: Portion) -> Least:
    """The least of these."""
    return Least(frozenset(portions))


WHOLE: Final = Portion(replicas=1, rank=0)
NOTHING: Final = Portion(replicas=0, rank=0)
