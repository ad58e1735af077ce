"""Clients that several parts share: one for each server, whatever the number of those who ask."""

from __future__ import annotations

import asyncio

from async_processor.clock import Clock
from async_processor.errors import ConfigurationError, Problem
from async_processor.fields import TlsSettings
from async_processor.redis_io.address import place
from async_processor.redis_io.client import RedisClient
from async_processor.redis_io.connect import follow_cluster, open_client


class SharedClient:
    """One server, or the cluster that it belongs to; connects when it is first asked for."""

    def __init__(self, url: str, *, tls: TlsSettings, clock: Clock) -> None:
        self._url = url
        self._tls = tls
        self._server = open_client(url, tls=tls, clock=clock)
        self._client: RedisClient | None = None
        self._turn = asyncio.Lock()

    @property
    def place(self) -> str:
        """The server's name, without user and password, for people to read."""
        return place(self._url)

    async def get(self) -> RedisClient:
        """The client; raises as `RedisClient.execute` until the server has answered once."""
        async with self._turn:
            if self._client is None:
                self._client = await follow_cluster(self._server, self._url, tls=self._tls)
        return self._client

    async def close(self) -> None:
        """End all connections."""
        await (self._client or self._server).close()


class SharedClients:
    """A service that hands out clients, equal URLs sharing one."""

    def __init__(self, *, tls: TlsSettings, clock: Clock) -> None:
        self._tls = tls
        self._clock = clock
        self._clients: dict[str, SharedClient] = {}

    def at(self, url: str) -> SharedClient:
        """The client of a URL. Raises ConfigurationError for one that cannot be used."""
        if url not in self._clients:
            self._clients[url] = self._open(url)
        return self._clients[url]

    def _open(self, url: str) -> SharedClient:
        try:
            return SharedClient(url, tls=self._tls, clock=self._clock)
        except ConfigurationError as error:
            problems = [
                Problem(path=f"the url of a gate ({place(url)})", message=problem.message)
                for problem in error.problems
            ]
            raise ConfigurationError(problems) from None

    async def start(self) -> None:
        """Nothing to start: connections are made when they are used."""

    async def stop(self) -> None:
        for client in self._clients.values():
            await client.close()
