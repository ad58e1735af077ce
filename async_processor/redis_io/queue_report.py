"""Reads how one queue stands, as an outsider: nothing is changed."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from async_processor.redis_io.client import RedisClient
from async_processor.redis_io.keys import lot_key, queue_keys
from async_processor.redis_io.scripts import FIRST

_MILLISECONDS_FROM: Final = 1e11
"""A score above it was meant to be in seconds and is in milliseconds."""


class QueueReport(msgspec.Struct, frozen=True, kw_only=True):
    """What lies in the broker. Times are Unix times in seconds by the broker's clock.

    `expired` waiting requests have a score that has passed, `in_milliseconds` one that no deadline
    in seconds has. `parked` ones wait in a lot until a gate has room. `leased` ones are claimed,
    `leases_ended` of them by someone who is silent; `next_lease_end` is the first end to come.
    `retries`, of them `retries_due`, and `dead_letters` are those of all queues together.
    `stranded` letters of this queue lie beside them, for the dead-letter queue did not take them.
    """

    queue_name: str
    now: float
    waiting: int
    parked: int
    expired: int
    in_milliseconds: int
    oldest_deadline: float | None
    leased: int
    leases_ended: int
    next_lease_end: float | None
    retries: int
    retries_due: int
    next_retry: float | None
    dead_letters: int
    stranded: int


async def read_report(
    client: RedisClient, queue_name: str, *, retry_queue: str, dead_letter_queue: str
) -> QueueReport:
    """One look; raises as `RedisClient.execute`."""
    seconds, microseconds = await client.execute("TIME")
    now = int(seconds) + int(microseconds) / 1e6
    keys = queue_keys(queue_name)
    answers: list[Any] = await client.pipeline(
        [
            ("ZCARD", queue_name),
            ("ZCOUNT", queue_name, "-inf", now),
            ("ZCOUNT", queue_name, _MILLISECONDS_FROM, "+inf"),
            FIRST.command((queue_name, keys.lots), (0,)),
            ("ZRANGE", keys.lots, 0, -1),
            ("ZCARD", keys.leases),
            ("ZCOUNT", keys.leases, "-inf", now * 1000),
            ("ZRANGEBYSCORE", keys.leases, f"({now * 1000}", "+inf", "WITHSCORES", "LIMIT", 0, 1),
            ("ZCARD", retry_queue),
            ("ZCOUNT", retry_queue, "-inf", now),
            FIRST.command((retry_queue,), (0,)),
            ("LLEN", dead_letter_queue),
            ("LLEN", keys.stranded),
        ]
    )
    (waiting, expired, in_ms, first, lots, *answers) = answers
    (leased, ended, lease, retries, due, first_retry, letters, astray) = answers
    parked: list[int] = await client.pipeline(
        [("ZCARD", lot_key(queue_name, lot.decode())) for lot in lots]
    )
    return QueueReport(
        queue_name=queue_name,
        now=now,
        waiting=waiting,
        parked=sum(parked),
        expired=expired,
        in_milliseconds=in_ms,
        oldest_deadline=_score(first),
        leased=leased,
        leases_ended=ended,
        next_lease_end=float(lease[1]) / 1000 if lease else None,
        retries=retries,
        retries_due=due,
        next_retry=_score(first_retry),
        dead_letters=letters,
        stranded=astray,
    )


def _score(first: list[bytes]) -> float | None:
    _, lowest, _ = first
    return float(lowest) if lowest else None
