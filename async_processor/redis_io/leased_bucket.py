"""A token bucket in Redis whose rate a planner leases to all replicas together."""

from __future__ import annotations

from typing import Final

import msgspec

from async_processor.redis_io.scripts import LEASED_RATE
from async_processor.redis_io.shared import SharedClient

API_VERSION: Final = "llm-d.ai/v1alpha1"
"""Of the lease, as planners write it."""


class Draw(msgspec.Struct, frozen=True, kw_only=True):
    """What the bucket gave, and the lease that it stands under.

    `refused` says why the lease does not hold, or is empty. `rate` is per second, `valid_until` is
    in Unix seconds, `left` says for how many seconds more it holds, and `wait` in how many seconds
    there will be as many permits as were wanted.
    """

    refused: str
    permits: int
    rate: float
    valid_until: float
    left: float
    wait: float


class LeasedBucket:
    """The bucket of one pool; it holds the permits of `burst` seconds, and one at least."""

    def __init__(
        self, client: SharedClient, *, control_key: str, state_key: str, pool_id: str, burst: float
    ) -> None:
        self._client = client
        self._keys = (control_key, state_key)
        self._pool_id = pool_id
        self._burst = burst
        self.name = control_key

    async def draw(self, wanted: int) -> Draw:
        """Take up to `wanted` permits, or only look with 0. Raises as `Script.run`."""
        arguments = (API_VERSION, self._pool_id, self._burst, wanted)
        client = await self._client.get()
        refused, permits, rate, until, left, wait = await LEASED_RATE.run(
            client, self._keys, arguments
        )
        return Draw(
            refused=refused.decode(),
            permits=permits,
            rate=float(rate),
            valid_until=until / 1000,
            left=left / 1000,
            wait=wait / 1000,
        )
