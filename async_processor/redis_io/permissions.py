"""Which keys this user may not use, found out without touching one.

Redis says that "one of the keys" of a script is forbidden, not which. It judges the keys of a
script that does nothing by the same rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from async_processor.redis_io.client import RedisClient
from async_processor.redis_io.errors import AccessDenied

_NOTHING: Final = "return 0"


async def permitted(client: RedisClient, keys: Sequence[str]) -> bool:
    """Whether a script may use all these keys; raises BrokerUnavailable."""
    try:
        await client.execute("EVAL", _NOTHING, len(keys), *keys)
    except AccessDenied:
        return False
    return True


async def forbidden_among(client: RedisClient, keys: Sequence[str]) -> frozenset[str]:
    """The keys that a script may not use; few of many are found in few steps."""
    if not keys or await permitted(client, keys):
        return frozenset()
    if len(keys) == 1:
        return frozenset(keys)
    half = len(keys) // 2
    first = await forbidden_among(client, keys[:half])
    return first | await forbidden_among(client, keys[half:])
