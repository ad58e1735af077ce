"""The tiers of service, and what an unknown one counts as."""

from __future__ import annotations

from enum import StrEnum


class Tier(StrEnum):
    """How urgent a queue's work is, the most urgent first."""

    INTERACTIVE = "interactive"
    ASYNC = "async"
    BATCH = "batch"

    rank: int
    """0 is the most urgent."""

    def __init__(self, name: str) -> None:  # noqa: ARG002
        self.rank = len(type(self).__members__)


_BY_NAME = {tier.value: tier for tier in Tier}


def read(text: str) -> Tier:
    """The tier of this name; an unknown name, or none, is batch."""
    return _BY_NAME.get(text, Tier.BATCH)
