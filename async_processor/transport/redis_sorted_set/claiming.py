"""Claims of one queue: one at a time, and none is left behind when its answer is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from async_processor.redis_io.client import Argument
from async_processor.redis_io.errors import AnswerLost
from async_processor.redis_io.keys import queue_keys
from async_processor.redis_io.scripts import CLAIM
from async_processor.transport.base import SUSPECT_AFTER, Delivery
from async_processor.transport.redis_sorted_set.leases import give_back
from async_processor.transport.redis_sorted_set.link import Link
from async_processor.wire import envelope


class QueueClaims:
    """Claims messages of one queue.

    A claim without an answer may have leased messages to us that we know nothing of. Until a
    whole lease has passed (the command may still wait in the server's buffer) every claim first
    gives back what that one took, so they are claimed again in their order, uncounted; and so
    does `look_after`, for a queue that is not claimed from.
    """

    def __init__(self, link: Link, queue_name: str, claim_bytes: int) -> None:
        self._link = link
        self._queue_name = queue_name
        self._claim_bytes = claim_bytes
        keys = queue_keys(queue_name)
        self._keys = (keys.queue, keys.claims, keys.leases, keys.deliveries)
        self._turn = asyncio.Lock()
        self._unanswered: dict[str, float] = {}

    async def claim(self, limit: int, *, highest: str, suspects: int) -> Sequence[Delivery]:
        """Lease up to `limit` messages, at most `suspects` of them suspects; see claim.lua."""
        async with self._turn:
            await self._give_back_unanswered()
            prefix = f"{self._link.owner}:{next(self._link.batches)}:"
            arguments = (
                prefix, limit, self._claim_bytes, self._link.lease_ms, highest, suspects,
                SUSPECT_AFTER,
            )  # fmt: skip
            asked_at = self._link.clock.monotonic()
            now, *claimed = await self._ask(prefix, arguments)
            self._link.hear_time(float(now), asked_at)
            return self._read(float(now), claimed)

    async def look_after(self) -> None:
        """Give back what claims without an answer took, unless a claim does so just now.

        To be called every now and then: while a gate is closed nothing is claimed.
        """
        if self._unanswered and not self._turn.locked():
            async with self._turn:
                await self._give_back_unanswered()

    async def _ask(self, prefix: str, arguments: Sequence[Argument]) -> list[bytes]:
        try:
            answer: list[bytes] = await CLAIM.run(self._link.client, self._keys, arguments)
        except (AnswerLost, asyncio.CancelledError):
            self._unanswered[prefix] = self._link.clock.monotonic()
            raise
        return answer

    async def _give_back_unanswered(self) -> None:
        for prefix, lost_at in tuple(self._unanswered.items()):
            await give_back(self._link, self._queue_name, prefix)
            if self._link.clock.monotonic() - lost_at > self._link.settings.lease_ttl:
                del self._unanswered[prefix]

    def _read(self, now: float, claimed: list[bytes]) -> list[Delivery]:
        triples = zip(claimed[::3], claimed[1::3], claimed[2::3], strict=True)
        return [self._delivery(now, *triple) for triple in triples]

    def _delivery(self, now: float, token: bytes, deliveries: bytes, body: bytes) -> Delivery:
        return Delivery(
            queue_name=self._queue_name,
            token=token.decode(),
            body=body,
            score=float(token.rpartition(b":")[2]),
            deliveries=int(deliveries),
            claimed_at=now,
            message=envelope.examine(body),
        )
