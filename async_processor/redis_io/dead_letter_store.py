"""The dead-letter queue: looked through from its oldest letter, and moved back or purged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from async_processor.redis_io.client import Argument, RedisClient
from async_processor.redis_io.producer_keys import PAYLOAD_GRACE_S, sequence_key
from async_processor.redis_io.scripts import Script
from async_processor.wire.envelope import score
from async_processor.wire.names import active_key, cancel_key, slot_tag

_READ: Final = Script("read_dead_letters")
_POST: Final = Script("post_dead_letter")
_REQUEUE: Final = Script("requeue_dead_letter")
_SEQUENCE_GRACE_S: Final = 3600
_PAGE: Final = 50
_PAGE_BYTES: Final = 4 * 2**20


class DeadLetterStore:
    """One dead-letter queue. Every method may raise BrokerUnavailable."""

    def __init__(self, client: RedisClient, name: str) -> None:
        self._client = client
        self._name = name

    async def length(self) -> int:
        """How many letters there are."""
        return int(await self._client.execute("LLEN", self._name))

    async def page(self, skip: int) -> Sequence[bytes]:
        """Some letters, the oldest first, after the `skip` oldest: few if they are large."""
        arguments: list[Argument] = [skip, _PAGE, _PAGE_BYTES]
        letters: list[bytes] = await _READ.run(self._client, [self._name], arguments)
        return letters

    async def purge(self, letter: bytes) -> bool:
        """Delete a letter; False when somebody else has moved or deleted it."""
        return bool(await self._client.execute("LREM", self._name, -1, letter))

    async def post(
        self, letter: bytes, result: bytes, places: Sequence[str], expires_ms: int | None
    ) -> bool:
        """Push the result that a letter holds to the first place in reach, in one step.

        Its list expires so many milliseconds later. False when somebody else has moved or deleted
        the letter. Raises BrokerRefused where the list does not take it.
        """
        place = next(filter(self._in_reach, places), places[0])
        arguments: list[Argument] = [letter, result, "" if expires_ms is None else expires_ms]
        return bool(await _POST.run(self._client, [self._name, place], arguments))

    def _in_reach(self, key: str) -> bool:
        return not self._client.clustered or slot_tag(key) == slot_tag(self._name)

    async def keep_payload(self, key: str, deadline: int) -> bool:
        """Keep a stored payload as long as a deadline (Unix seconds) asks; False if it is gone."""
        return bool(await self._client.execute("EXPIREAT", key, deadline + PAYLOAD_GRACE_S))

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

        The move is one step, and from it on the request can be cancelled; `deadline` is in Unix
        seconds. False when somebody else has moved or deleted the letter.
        """
        sequence = sequence_key(queue_name, deadline)
        (seq, *_) = await self._client.pipeline(
            [
                ("INCR", sequence),
                ("EXPIREAT", sequence, deadline + _SEQUENCE_GRACE_S),
                ("DEL", cancel_key(request_id)),
                ("SET", active_key(request_id), request_token, "EXAT", deadline),
            ]
        )
        arguments: list[Argument] = [letter, repr(score(deadline, seq)), message(seq)]
        return bool(await _REQUEUE.run(self._client, [self._name, queue_name], arguments))
