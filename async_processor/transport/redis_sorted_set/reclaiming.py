"""Leases of dead holders are taken back, those of living holders that were cut off are not.

A lease that has ended says only that its holder was not heard of. After an outage that is true of
everybody: the holders live, and renew their leases within a third of a lease of the broker's
return. So nothing is taken back for half a lease

* after this replica reached the broker again, and
* after the server's own start (INFO server): it was away before, which a replica that was started
  since has not seen.

When the network failed for all and the server lived on, a replica that was started since cannot
know. For half a lease after its start it leaves alone what had ended by then. What ends later it
takes back at once: so a process that follows a dead one directly waits for nothing, for leases
outlive their holder by two thirds of a lease at least; and replicas that live on never wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from async_processor.redis_io.keys import go_claim_keys, queue_keys
from async_processor.redis_io.scripts import ADOPT, END_LEASES, RECLAIM
from async_processor.transport.redis_sorted_set.link import Link
from async_processor.wire import envelope
from async_processor.wire.envelope import Envelope

_MOVED_AT_ONCE: Final = 100
_BYTES_AT_ONCE: Final = 4 * 2**20


async def reclaim(link: Link, queue_name: str) -> int:
    """Put messages with an expired lease back into the queue; returns how many."""
    if link.client.outage.away:
        await link.client.execute("PING")
    patience = link.settings.lease_ttl / 2
    now = link.clock.now()
    if min(link.client.outage.seconds_since_return, now - link.server_started_at) < patience:
        return 0
    earliest_end = link.opened_at if now - link.opened_at < patience else 0.0
    return await _reclaim_expired(link, queue_name, earliest_end) + await _adopt_expired(
        link, queue_name
    )


async def reclaim_from(link: Link, queue_name: str, owner: str) -> int:
    """Put back what a holder has that is known to be dead, whatever the broker went through."""
    await END_LEASES.run(link.client, (queue_keys(queue_name).leases,), (f"{owner}:",))
    return await _reclaim(link, queue_name, earliest="0", latest="0")


async def _reclaim_expired(link: Link, queue_name: str, earliest_end: float) -> int:
    return await _reclaim(link, queue_name, earliest=str(round(earliest_end * 1000)), latest="now")


async def _reclaim(link: Link, queue_name: str, *, earliest: str, latest: str) -> int:
    keys = queue_keys(queue_name)
    names = (keys.queue, keys.claims, keys.leases, keys.deliveries, keys.lots)
    total = 0
    while True:
        arguments = (_MOVED_AT_ONCE, earliest, latest)
        reclaimed: int = await RECLAIM.run(link.client, names, arguments)
        total += reclaimed
        if reclaimed < _MOVED_AT_ONCE:
            return total


async def _adopt_expired(link: Link, queue_name: str) -> int:
    """Take over what the Go implementation claimed and left."""
    keys = go_claim_keys(queue_name, clustered=link.client.clustered)
    total = 0
    while True:
        expired = await link.client.execute(
            "ZRANGEBYSCORE", keys.index, "-inf", link.clock.now(), "LIMIT", 0, _MOVED_AT_ONCE
        )
        if not expired:
            return total
        ids = await _within_bytes(link, keys.claimed, expired)
        bodies = await link.client.execute("HMGET", keys.claimed, *ids)
        scored = [(id_, _score(body)) for id_, body in zip(ids, bodies, strict=True)]
        adopted: int = await ADOPT.run(
            link.client,
            (queue_name, keys.claimed, keys.owners, keys.index),
            [argument for pair in scored for argument in pair],
        )
        total += adopted
        if adopted < len(ids):
            return total


async def _within_bytes(link: Link, claimed: str, ids: Sequence[bytes]) -> Sequence[bytes]:
    """The first ids whose bodies make up one bounded answer; at least one."""
    sizes = await link.client.pipeline([("HSTRLEN", claimed, id_) for id_ in ids])
    before = accumulate(sizes, initial=0)
    return [id_ for id_, size in zip(ids, before, strict=False) if size < _BYTES_AT_ONCE]


def _score(body: bytes | None) -> float:
    """Where a message belongs in its queue; one that cannot be read comes first, to be buried."""
    message = envelope.examine(body or b"")
    return message.score if isinstance(message, Envelope) else 0.0
