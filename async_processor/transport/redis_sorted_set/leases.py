"""Leases: renewed while their holder lives, taken back when it does not, freed when it stops."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Final

from async_processor.redis_io.keys import go_claim_keys, queue_keys
from async_processor.redis_io.scripts import ADOPT, EXTEND, GIVE_BACK, RECLAIM
from async_processor.transport.base import Delivery
from async_processor.transport.redis_sorted_set.link import Link
from async_processor.wire import envelope
from async_processor.wire.envelope import Envelope

_EXTENDED_AT_ONCE: Final = 1000
_MOVED_AT_ONCE: Final = 100


async def extend(link: Link, deliveries: Sequence[Delivery]) -> Collection[str]:
    """Renew leases to one full lease from now; returns the tokens of those lost."""
    tokens: defaultdict[str, list[str]] = defaultdict(list)
    for delivery in deliveries:
        tokens[delivery.queue_name].append(delivery.token)
    lost: set[str] = set()
    for queue_name, held in tokens.items():
        for start in range(0, len(held), _EXTENDED_AT_ONCE):
            lost |= await _extend(link, queue_name, held[start : start + _EXTENDED_AT_ONCE])
    return lost


async def _extend(link: Link, queue_name: str, tokens: list[str]) -> set[str]:
    keys = (queue_keys(queue_name).leases,)
    asked_at = link.clock.monotonic()
    now, *gone = await EXTEND.run(link.client, keys, (link.lease_ms, *tokens))
    link.hear_time(float(now), asked_at)
    return {token.decode() for token in gone}


async def give_back(link: Link, queue_name: str, prefix: str) -> None:
    """Put everything claimed under a token prefix back, uncounted."""
    keys = queue_keys(queue_name)
    while True:
        given = await GIVE_BACK.run(
            link.client, (keys.queue, keys.claims, keys.leases), (prefix, _MOVED_AT_ONCE)
        )
        if given < _MOVED_AT_ONCE:
            return


async def reclaim(link: Link, queue_name: str) -> int:
    """Put messages with an expired lease back into the queue; returns how many.

    After an outage every lease looks expired, though its holder lives and is about to renew it:
    for half a lease nothing is taken back.
    """
    if link.client.outage.away:
        await link.client.execute("PING")
    if link.client.outage.seconds_since_return < link.settings.lease_ttl / 2:
        return 0
    return await _reclaim_expired(link, queue_name) + await _adopt_expired(link, queue_name)


async def _reclaim_expired(link: Link, queue_name: str) -> int:
    keys = queue_keys(queue_name)
    names = (keys.queue, keys.claims, keys.leases, keys.deliveries, keys.lots)
    total = 0
    while True:
        reclaimed: int = await RECLAIM.run(link.client, names, (_MOVED_AT_ONCE,))
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
        bodies = await link.client.execute("HMGET", keys.claimed, *expired)
        scored = [(id_, _score(body)) for id_, body in zip(expired, bodies, strict=True)]
        adopted: int = await ADOPT.run(
            link.client,
            (queue_name, keys.claimed, keys.owners, keys.index),
            [argument for pair in scored for argument in pair],
        )
        total += adopted
        if adopted < _MOVED_AT_ONCE:
            return total


def _score(body: bytes | None) -> float:
    """Where a message belongs in its queue; one that cannot be read comes first, to be buried."""
    message = envelope.examine(body or b"")
    return message.score if isinstance(message, Envelope) else 0.0
