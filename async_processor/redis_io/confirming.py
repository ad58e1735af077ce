"""Writes that replicas have as well: what a failover does not take back.

Redis answers a write before its replicas have it. `WAIT`, sent with the write over the same
connection, answers when they do, or after its timeout with how many do. It changes nothing about
the write: that stands on the master either way.
"""

from __future__ import annotations

from typing import Any, Final

from async_processor.errors import BrokerUnavailable, ConfigurationError, Problem
from async_processor.fields import Confirm
from async_processor.redis_io.client import Command, RedisClient

_LOOK_SECONDS: Final = 1.0
"""Whoever asks for readiness does not wait for as long as a write does."""
_NO_CLUSTER: Final = (
    "must be 0 on Redis Cluster, where no connection stays with a write; its own setting"
    " min-replicas-to-write refuses writes without replicas"
)


async def confirmed(client: RedisClient, write: Command, confirm: Confirm) -> tuple[Any, bool]:
    """Send a write; returns its answer, and whether as many replicas have it as `confirm` asks for.

    Raises as `RedisClient.execute`.
    """
    wait = _wait(confirm.replicas, confirm.timeout)
    answer, replicas = await client.pipeline([write, wait], wait=confirm.timeout)
    return answer, replicas >= confirm.replicas


async def require_replicas(client: RedisClient, confirm: Confirm) -> None:
    """Raises BrokerUnavailable when replicas are missing that writes are to be confirmed by."""
    if not confirm.replicas:
        return
    seconds = min(confirm.timeout, _LOOK_SECONDS)
    replicas = await client.execute(*_wait(confirm.replicas, seconds), wait=seconds)
    if replicas < confirm.replicas:
        raise BrokerUnavailable(
            f"Redis has {replicas} replicas in step, and writes are to be confirmed by"
            f" {confirm.replicas}"
        )


def check_confirming(client: RedisClient, confirm: Confirm) -> None:
    """Raises ConfigurationError where replicas cannot be asked."""
    if confirm.replicas and client.clustered:
        raise ConfigurationError([Problem(path="transport.confirm.replicas", message=_NO_CLUSTER)])


def _wait(replicas: int, seconds: float) -> Command:
    return "WAIT", replicas, max(1, round(seconds * 1000))
