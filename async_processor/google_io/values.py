"""What goes to Pub/Sub and comes from it, in our own words."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

import msgspec

LONGEST_LEASE: Final = 600
"""Seconds; the most that Pub/Sub grants at once."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What is published."""

    data: bytes
    attributes: Mapping[str, str] = {}

    @property
    def size(self) -> int:
        """Bytes, more or less."""
        return len(self.data) + sum(map(len, self.attributes)) + 64


class Received(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What a pull leased to this process.

    `attempt` counts deliveries of this message from 1; 0 where the subscription has no dead-letter
    policy, for then nobody counts. `published_at` is a Unix time in seconds by Google's clock.
    """

    ack_id: str
    data: bytes
    attributes: Mapping[str, str]
    message_id: str
    published_at: float
    attempt: int


class Verdict(Enum):
    """What became of one lease in a call about many."""

    DONE = auto()
    LOST = auto()
    """The lease is somebody else's now."""
    AGAIN = auto()
    """It did not work, and may when tried again."""


class SubscriptionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """How a subscription is set up; `ack_deadline` is in seconds.

    `max_delivery_attempts` is 0 and `dead_letter_topic` empty without a dead-letter policy.
    """

    topic: str
    ack_deadline: int
    exactly_once: bool
    pushes: bool
    dead_letter_topic: str
    max_delivery_attempts: int


class NewSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """A pull subscription to be created. Seconds; `backoff` is the shortest and the longest.

    With a `lifetime` it is deleted when nobody has used it for so long, a day at least.
    """

    name: str
    topic: str
    ack_deadline: int
    exactly_once: bool = False
    filter: str = ""
    backoff: tuple[float, float] | None = None
    dead_letter_topic: str = ""
    max_delivery_attempts: int = 0
    lifetime: float | None = None
