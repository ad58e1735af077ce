"""Open a `RedisClient` from a URL: the one place that knows which kind stands behind it."""

from __future__ import annotations

import math
import re
from typing import Any, Final

from redis.asyncio import ConnectionPool, Sentinel
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.backoff import NoBackoff

from async_processor.clock import Clock, SystemClock
from async_processor.errors import BrokerRefused
from async_processor.fields import TlsSettings
from async_processor.redis_io import address
from async_processor.redis_io.client import RedisClient
from async_processor.redis_io.cluster import ClusterClient
from async_processor.redis_io.outage import Outage
from async_processor.redis_io.pooled import PooledClient
from async_processor.redis_io.url import checked

_CONNECTIONS: Final = 1024
_NO_TLS: Final = TlsSettings()


def open_client(
    url: str, *, tls: TlsSettings = _NO_TLS, clock: Clock | None = None
) -> PooledClient:
    """A client for the server, or the master that Sentinels name; connects when first used.

    Raises ConfigurationError for a URL or TLS files that cannot be used.
    """
    try:
        checked(url)
    except ValueError as error:
        raise address.refused(str(error)) from None
    outage = Outage(clock or SystemClock())
    if address.is_sentinel(url):
        return _behind_sentinel(address.sentinel_address(url), tls, outage)
    return _direct(url, tls, outage)


async def follow_cluster(client: PooledClient, url: str, *, tls: TlsSettings) -> RedisClient:
    """The same client, or one for the whole cluster if the server belongs to one.

    Raises as `RedisClient.execute`.
    """
    if not await _clustered(client):
        return client
    await client.close()
    return ClusterClient(url, _options(encrypted=address.is_encrypted(url), tls=tls), client.outage)


async def _clustered(client: PooledClient) -> bool:
    try:
        return b"cluster_enabled:1" in await client.execute("INFO", "cluster")
    except BrokerRefused:  # INFO is forbidden: then it has to be a plain server
        return False


async def uptime(client: RedisClient) -> float:
    """Seconds since the server was started; infinite where INFO is forbidden.

    Raises as `RedisClient.execute`.
    """
    try:
        told: bytes = await client.execute("INFO", "server")
    except BrokerRefused:
        return math.inf
    found = re.search(rb"uptime_in_seconds:(\d+)", told)
    return float(found[1]) if found else math.inf


def _direct(url: str, tls: TlsSettings, outage: Outage) -> PooledClient:
    options = _options(encrypted=address.is_encrypted(url), tls=tls)
    try:
        pool = ConnectionPool.from_url(url, max_connections=_CONNECTIONS, **options)
        pool.make_connection()  # type: ignore[no-untyped-call]
    except (ValueError, TypeError):
        raise address.refused(
            "cannot be read: redis://user:password@host:port/0, special characters in user and"
            " password percent-encoded, and no unknown options after a question mark"
        ) from None
    return PooledClient(pool, place=address.place(url), outage=outage)


def _behind_sentinel(
    where: address.SentinelAddress, tls: TlsSettings, outage: Outage
) -> PooledClient:
    options = _options(encrypted=where.encrypted, tls=tls)
    if where.encrypted:
        options["ssl"] = True
    login = {"username": where.user, "password": where.password}
    to_sentinels = {
        "username": where.sentinel_user,
        "password": where.sentinel_password,
        "socket_timeout": address.CONNECT_SECONDS,  # one that hangs must not hide the others
    }
    sentinel = _sentinel(list(where.hosts), options | to_sentinels)
    pool = _sentinel_pool(where.service, sentinel, options | login | {"db": where.database})

    async def close_sentinels() -> None:
        for client in sentinel.sentinels:
            await client.aclose()

    return PooledClient(
        pool, place=f"master {where.service}", outage=outage, close_too=close_sentinels
    )


def _sentinel(hosts: list[tuple[str, int]], options: dict[str, Any]) -> Sentinel:
    return Sentinel(hosts, sentinel_kwargs=options)  # type: ignore[no-untyped-call]


def _sentinel_pool(
    service: str, sentinel: Sentinel, options: dict[str, Any]
) -> SentinelConnectionPool:
    return SentinelConnectionPool(  # type: ignore[no-untyped-call]
        service, sentinel, max_connections=_CONNECTIONS, **options
    )


def _options(*, encrypted: bool, tls: TlsSettings) -> dict[str, Any]:
    """Protocol 2 on purpose: every proxy and every old server speaks it, and we need no more."""
    options = {**address.time_limits(), "protocol": 2, "retry": Retry(NoBackoff(), 0)}
    return options | (address.tls_options(tls) if encrypted else {})
