"""The tiers of service, and what an unknown one counts as."""

from __future__ import annotations

from enum import StrEnum


class Tier(StrEnum):
    """How urgent a queue's work is, the most urgent first."""

    INTERACTIVE = "interactive"
    ASYNC = "async"
    BATCH = "batch"

    @property
    def rank(self) -> int:
        """0 is the most urgent."""
        return _ORDER.index(self)


_ORDER = tuple(Tier)
_BY_NAME = {tier.value: tier for tier in Tier}


def read(text: str) -> Tier:
    """The tier of this name; an unknown name, or none, is batch."""
    return _BY_NAME.get(text, Tier.BATCH)
