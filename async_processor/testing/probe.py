"""How the contract suite looks at a broker from outside, and sets the stage for a test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol

from async_processor.transport.base import Transport
from async_processor.wire.dead_letter import DeadLetter


class Capability(StrEnum):
    """What a broker may lack. A test that needs one says so with `@pytest.mark.needs(...)`."""

    ORDER = "order"
    """Messages leave by score, and those of equal score as they came."""
    SCORES = "scores"
    """Scores can be set from outside and read back."""
    ATOMIC = "atomic"
    """Posting a result and giving up the claim are one step: no result twice."""
    FENCED = "fences"
    """Who lost a lease is told so, and writes nothing."""
    DEDUPLICATION = "deduplication"
    """Byte-identical messages are one while they wait."""
    CANCELLATION = "cancellation"
    """Senders can cancel, and the request's keys are kept in the broker."""
    STORED_PAYLOADS = "stored payloads"
    """A payload can lie in the broker apart from its message."""
    RESULT_EXPIRY = "result expiry"
    """A result queue can be given a lifetime."""
    INSTANT_RELEASE = "instant release"
    """A stopped replica's leases are free at once, not when they expire."""
    LOTS = "lots"
    """Messages can wait apart from their queue, until they are called back."""
    PROMPT = "prompt"
    """A claim sees at once everything that waits, and every replica is woken by it."""
    RECLAIMING = "reclaiming"
    """Expired leases are taken back by whoever asks for it, and a retry by whoever looks."""
    BACKLOG = "backlog"
    """The broker can say what lies in it."""


class BrokerProbe(Protocol):
    """One empty broker, for one test.

    Times are Unix times in seconds by the broker's clock. Queues and keys are named as in the
    contract: `retry-sortedset`, `dead-letter-list`, `request-active:<id>` and so on.
    """

    @property
    def capabilities(self) -> frozenset[Capability]: ...

    @property
    def forgiven(self) -> int:
        """So many lost leases of a message are not counted: the broker could not tell them from
        messages that were given back."""
        ...

    async def leases_end(self, lease_ttl: float) -> None:
        """Wait until leases of so many seconds have ended that nobody extends, where the broker
        takes them back by itself."""
        ...

    async def replica(self, *, lease_ttl: float = 60.0) -> Transport:
        """A started transport like another process would have; the probe stops it at the end.

        `lease_ttl` is in seconds; a test that waits for a lease to end asks for a short one.
        """
        ...

    async def now(self) -> float:
        """The broker's time."""
        ...

    async def submit(self, queue_name: str, body: bytes, score: float) -> None:
        """Put a raw message into a queue, as a foreign producer does (a plain ZADD)."""
        ...

    async def waiting(self, queue_name: str) -> Mapping[bytes, float]:
        """The messages that wait in a queue, and their scores."""
        ...

    async def results(self, result_queue: str) -> Sequence[bytes]:
        """What lies on a result queue, the oldest first; nothing is taken."""
        ...

    async def result_lifetime(self, result_queue: str) -> float | None:
        """Seconds until a result queue expires; None when it lives for ever."""
        ...

    async def dead_letters(self) -> Sequence[DeadLetter]:
        """What lies on the dead-letter queue, the oldest first."""
        ...

    async def set_key(self, key: str, value: bytes) -> None:
        """Write a key of a request (active, cancel, payload) as a producer does."""
        ...

    async def get_key(self, key: str) -> bytes | None:
        """Read a key of a request."""
        ...
