"""The dead-letter queue: looked through from its oldest letter, and moved back or purged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from async_processor.redis_io.client import Argument, RedisClient
from async_processor.redis_io.producer_keys import sequence_key
from async_processor.redis_io.scripts import Script
from async_processor.wire.envelope import score
from async_processor.wire.names import active_key, cancel_key

_REQUEUE: Final = Script("requeue_dead_letter")
_SEQUENCE_GRACE_S: Final = 3600


class DeadLetterStore:
    """One dead-letter queue. Every method may raise BrokerUnavailable."""

    def __init__(self, client: RedisClient, name: str) -> None:
        self._client = client
        self._name = name

    async def length(self) -> int:
        """How many letters there are."""
        return int(await self._client.execute("LLEN", self._name))

    async def page(self, skip: int, count: int) -> Sequence[bytes]:
        """Up to `count` letters, the oldest first, after the `skip` oldest."""
        newest_first: list[bytes] = await self._client.execute(
            "LRANGE", self._name, -(skip + count), -(skip + 1)
        )
        return newest_first[::-1]

    async def purge(self, letter: bytes) -> bool:
        """Delete a letter; False when somebody else has moved or deleted it."""
        return bool(await self._client.execute("LREM", self._name, -1, letter))

    async def requeue(
        self,
        letter: bytes,
        queue_name: str,
        message: Callable[[int], bytes],
        *,
        request_id: str,
        request_token: str,
        deadline: int,
    ) -> bool:
        """Move a letter back into a queue, as the message made for its new sequence number.

        The move is one step; `deadline` is in Unix seconds. False when somebody else has moved or
        deleted the letter.
        """
        sequence = sequence_key(queue_name, deadline)
        (seq, *_) = await self._client.pipeline(
            [
                ("INCR", sequence),
                ("EXPIREAT", sequence, deadline + _SEQUENCE_GRACE_S),
                ("DEL", cancel_key(request_id)),
            ]
        )
        arguments: list[Argument] = [letter, repr(score(deadline, seq)), message(seq)]
        if not await _REQUEUE.run(self._client, [self._name, queue_name], arguments):
            return False
        await self._client.execute("SET", active_key(request_id), request_token, "EXAT", deadline)
        return True
