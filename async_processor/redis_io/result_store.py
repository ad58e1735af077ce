"""What readers do with a result queue: take under a lease, acknowledge, put back.

Beside the list `<queue>` stand, only while somebody reads: `{<queue>}:readers`, each reader and
the end of its lease, and `{<queue>}:taken:<reader>`, the results in its keeping by their numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from async_processor.redis_io.client import RedisClient
from async_processor.redis_io.producer_keys import readers_key, taken_key
from async_processor.redis_io.scripts import Script

_TAKE: Final = Script("take_results")
_KEEP: Final = Script("keep_reader")
_RETURN: Final = Script("return_results")


class Kept(msgspec.Struct, frozen=True):
    """A result in a reader's keeping, and the number it goes by there."""

    number: bytes
    body: bytes


class ResultStore:
    """One result queue. Every method may raise BrokerUnavailable, and can then be repeated."""

    def __init__(self, client: RedisClient, queue_name: str) -> None:
        self.queue_name = queue_name
        self._client = client
        self._readers = readers_key(queue_name)

    async def take(
        self, reader: str, lease: float, call: int, *, limit: int, max_bytes: int
    ) -> Sequence[Kept]:
        """Take up to `limit` results; `lease` is in seconds.

        Repeated with the same `call` it returns what the first call took.
        """
        answer = await _TAKE.run(
            self._client,
            [self._readers, self.queue_name, taken_key(self.queue_name, reader)],
            [reader, _milliseconds(lease), f"{call:012d}", limit, max_bytes],
        )
        return [Kept(*pair) for pair in zip(answer[::2], answer[1::2], strict=True)]

    async def acknowledge(self, reader: str, numbers: Sequence[bytes]) -> None:
        """Forget results that have been dealt with."""
        if numbers:
            await self._client.execute("HDEL", taken_key(self.queue_name, reader), *numbers)

    async def keep(self, reader: str, lease: float) -> Sequence[str]:
        """Renew a lease of `lease` seconds; returns readers whose own lease has ended."""
        dead = await _KEEP.run(self._client, [self._readers], [reader, _milliseconds(lease)])
        return [name.decode() for name in dead]

    async def give_back(self, reader: str, *, closed: bool) -> None:
        """Put back what a reader kept; one that has not closed itself only after its lease."""
        await _RETURN.run(
            self._client,
            [self._readers, self.queue_name, taken_key(self.queue_name, reader)],
            [reader, "closed" if closed else "expired"],
        )


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
