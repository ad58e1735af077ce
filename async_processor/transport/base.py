"""What every transport is to the rest: claim under a lease, settle by the claim's token.

The promises (each transport passes the same contract suite, `tests/contract`):

* A claim leases a message to this process; nobody else gets it until the lease ends.
* Exactly one `settle` of a claim takes effect, and only while the claim stands: whoever lost the
  lease hears `Settlement.GONE`, and nothing was written.
* A lease that nobody extends is taken back by `reclaim`, which counts a delivery.
* Settlement decides what becomes of a request; the transport only executes it (`Outcome`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum, auto
from typing import Final, Protocol, runtime_checkable

import msgspec

from async_processor.clock import Clock
from async_processor.wire.envelope import Envelope, InvalidMessage
from async_processor.wire.result import Result

SUSPECT_AFTER: Final = 2
"""Deliveries without an outcome after which a message may be what kills its workers."""


class Delivery(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A message under lease.

    `token` names the claim: no two have the same, in whatever queues.
    `deliveries` counts earlier claims of it that ended without an outcome (their worker died).
    `claimed_at` and `published_at` are Unix times in seconds; the latter only where the transport
    knows it. `score` is where the message stood in the queue.
    """

    queue_name: str
    token: str
    body: bytes
    score: float
    deliveries: int
    claimed_at: float
    message: Envelope | InvalidMessage
    published_at: float | None = None

    @property
    def request_id(self) -> str:
        """The request's id, as far as it could be read; "" when it could not."""
        match self.message:
            case Envelope(request=request):
                return request.id
            case InvalidMessage(id=request_id):
                return request_id

    @property
    def request_token(self) -> str:
        """Which generation of the id this is; "" when the producer gave none."""
        return self.message.request_token

    @property
    def payload_ref(self) -> str:
        """Where the payload is stored; "" when it came with the message."""
        return self.message.payload_ref if isinstance(self.message, Envelope) else ""


class Post(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The request ends: its result goes to `result_queue`, its keys are cleaned up.

    `expires_after` (seconds) is set on the result queue with the push; None leaves it alone.
    """

    result: Result
    result_queue: str
    expires_after: float | None = None


class Retry(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """An attempt failed: `body`, the rewritten message, is due again at a Unix time."""

    body: bytes
    due_at: float


class Release(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Back to the queue, uncounted; under its old score unless a new one is given.

    With `body` the message goes on as that one; what was counted of it is counted of the new body.
    """

    score: float | None = None
    body: bytes | None = None


class Park(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Waits in a lot of its queue, uncounted, until it is called back.

    It keeps its score and expires like any other; a claim does not find it.
    """

    lot: str


class Bury(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The raw message goes to the dead-letter queue, and the sender, if known, gets a result."""

    reason: str
    post: Post | None = None


Outcome = Post | Retry | Release | Park | Bury


class Settlement(Enum):
    """What became of a settle."""

    DONE = auto()
    BURIED = auto()
    """Done, but no list took the result: it lies in a dead letter with its message."""
    UNCONFIRMED = auto()
    """Done, once and for all as far as the broker keeps it; but not as many of its replicas have
    it in time as were asked for, so a failover may take it back."""
    GONE = auto()
    """The lease was lost; whoever has the message now decides about it."""


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """What lies in the broker for one queue. Deadlines are Unix times in seconds.

    `waiting` is the queue's cardinality, `parked` what waits in the broker outside of it,
    `leased` what any replica holds. `deadlines` holds, for ascending bounds given by the caller,
    how many waiting and parked requests have at most that many milliseconds left (cumulative, with
    the total as its last element); `oldest_deadline` is the lowest score of all of them.
    `dead_letters` are those of all queues, with those that the dead-letter queue did not take.
    `oldest_age` is how many seconds ago the oldest was published, where the broker knows it; one
    that keeps an order tells that of the request which is next, by what its sender wrote into it.
    """

    waiting: int
    parked: int = 0
    leased: int = 0
    retries_due: int = 0
    dead_letters: int = 0
    oldest_deadline: float | None = None
    oldest_age: float | None = None
    deadlines: tuple[int, ...] = ()


class Transport(Protocol):
    """One broker connection and the queues behind it.

    Every method but `start` and `stop` may raise `BrokerUnavailable`; after it the caller tries
    again for as long as it takes. `settle` alone does not raise it: it keeps the outcome and
    delivers it when the broker is back.
    """

    @property
    def clock(self) -> Clock:
        """Kept to the broker's time by every claim."""
        ...

    async def start(self) -> None:
        """Connect; waits for a broker that is away. Raises ConfigurationError when it refuses."""
        ...

    async def stop(self) -> None:
        """Deliver what is still to settle, free every lease of this process, disconnect."""
        ...

    async def ping(self) -> None:
        """Return when the broker answers; raises BrokerUnavailable within 3 s."""
        ...

    async def claim(self, queue_name: str, limit: int, *, suspects: bool) -> Sequence[Delivery]:
        """Lease up to `limit` messages, earliest deadline first; may return none.

        With `suspects` at most one message is among them that two claims have left without an
        outcome; without, there is none.
        """
        ...

    async def claim_expired(self, queue_name: str, limit: int) -> Sequence[Delivery]:
        """Like `claim`, of messages whose score has passed, suspects and parked ones included."""
        ...

    async def settle(self, delivery: Delivery, outcome: Outcome) -> Settlement:
        """Execute the outcome in one atomic step, fenced by the claim's token."""
        ...

    async def extend(self, deliveries: Sequence[Delivery]) -> Collection[str]:
        """Renew the leases, to one full lease from now; returns the tokens of those lost."""
        ...

    async def reclaim(self, queue_name: str) -> int:
        """Put messages with an expired lease back into the queue; returns how many."""
        ...

    async def promote_retries(self) -> float | None:
        """Put due retries back into their own queues; returns when the next is due (Unix time)."""
        ...

    async def trim_dead_letters(self, limit: int) -> int:
        """Drop the oldest dead letters over `limit`; returns how many."""
        ...

    async def lots(self, queue_name: str) -> Sequence[str]:
        """The lots of the queue in which messages wait."""
        ...

    async def recall(self, queue_name: str, lot: str, limit: int) -> int:
        """Put up to `limit` messages of a lot, earliest deadline first, back into the queue."""
        ...

    async def next_expiry(self, queue_name: str) -> float | None:
        """The earliest score in the queue and its lots, a Unix time; None when all are empty."""
        ...

    async def wait_for_work(self, queue_name: str, timeout: float) -> bool:
        """Return True as soon as the queue holds a message, False after `timeout` seconds.

        When it returns another replica may have taken the message.
        """
        ...

    async def cancelled(self, deliveries: Sequence[Delivery]) -> Collection[str]:
        """The claim tokens of those whose sender has cancelled them."""
        ...

    async def stored_payload(self, delivery: Delivery) -> bytes | None:
        """The body that `payload_ref` names; None when it is gone."""
        ...

    async def backlog(self, queue_name: str, bounds_ms: Sequence[int]) -> Backlog:
        """Read what lies in the broker for a queue; raises BacklogUnknown if it does not tell."""
        ...


@runtime_checkable
class KnowsHolders(Protocol):
    """A transport that can tell whose a lease is, so that the dead need not be waited for."""

    @property
    def owner(self) -> str:
        """Who this process is in the broker."""
        ...

    async def reclaim_from(self, queue_name: str, owner: str) -> int:
        """Like `reclaim`, of all that another process holds, which the caller knows to be dead."""
        ...
