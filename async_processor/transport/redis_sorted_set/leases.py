"""Leases: renewed while their holder lives, given back when it stops or never heard of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Final

from async_processor.redis_io.keys import queue_keys
from async_processor.redis_io.scripts import EXTEND, GIVE_BACK
from async_processor.transport.base import Delivery
from async_processor.transport.redis_sorted_set.link import Link

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
