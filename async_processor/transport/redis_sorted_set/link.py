"""The connection that all parts of the transport share, and who this process is in the broker."""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, Final

from async_processor.clock import Clock
from async_processor.errors import BrokerUnavailable
from async_processor.redis_io.client import Command, RedisClient
from async_processor.redis_io.connect import follow_cluster, open_client, uptime
from async_processor.telemetry.logs import get_logger
from async_processor.transport.redis_sorted_set.checks import check
from async_processor.transport.settings import RedisSettings

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0
_TIME_OF_NODE: Final = "return redis.call('TIME')"

_log = get_logger(__name__)


def pauses() -> Iterator[float]:
    """Seconds to wait between attempts at a broker that is away: growing, jittered, bounded."""
    pause = _FIRST_PAUSE
    while True:
        yield pause * random.uniform(0.5, 1)
        pause = min(2 * pause, _LONGEST_PAUSE)


class Link:
    """Opened once at start. `owner` is new for each process: no claim is another life's."""

    def __init__(self, settings: RedisSettings, clock: Clock) -> None:
        self.settings = settings
        self.clock = clock
        self.owner = secrets.token_hex(8)
        self.batches = count(1)
        """Numbers claims over all queues, so that no two claims share a token."""
        self.opened_at = -math.inf
        """When this process first reached the server, a Unix time by the server's clock."""
        self.server_started_at = -math.inf
        """When the server of that moment was started; -inf where it does not say so."""
        self._server = open_client(settings.url, tls=settings.tls, clock=clock)
        self._client: RedisClient = self._server

    @property
    def client(self) -> RedisClient:
        """Commands go here; usable as soon as the broker is."""
        return self._client

    @property
    def lease_ms(self) -> int:
        """A full lease in milliseconds."""
        return round(self.settings.lease_ttl * 1000)

    async def open(self, queue_names: Sequence[str]) -> None:
        """Wait until the broker answers, and take over its time.

        Raises BrokerRefused when it answers and refuses, ConfigurationError when the queues
        cannot work there.
        """
        for pause in pauses():
            try:
                await self._connect()
                await check(self._client, self.settings, queue_names)
            except BrokerUnavailable as error:
                _log.warning("broker_unavailable", error=str(error))
                await self.clock.sleep(pause)
            else:
                return

    async def ask(self, key: str, commands: Sequence[Command]) -> list[Any]:
        """Send commands at once; the time of the server that has `key` comes with the answers.

        Raises as `RedisClient.pipeline`.
        """
        time: Command = ("TIME",)
        if self._client.clustered:
            time = ("EVAL", _TIME_OF_NODE, 1, key)
        asked_at = self.clock.monotonic()
        told, *answers = await self._client.pipeline([time, *commands])
        self.hear_time(_unix_time(told), asked_at)
        return answers

    def hear_time(self, told: float, asked_at: float) -> None:
        """Follow the server's clock; `told` is its Unix time after the monotonic `asked_at`.

        Its time now lies at most a round trip later: a clock that shows a time in between is right.
        """
        latest = told + self.clock.monotonic() - asked_at
        shown = self.clock.now()
        if not told <= shown <= latest:
            self.clock.synchronise(min(max(shown, told), latest))

    async def close(self) -> None:
        """End all connections."""
        await self._client.close()

    async def _connect(self) -> None:
        if self._client is not self._server:
            return  # known to be a cluster since an earlier attempt
        self.clock.synchronise(_unix_time(await self._server.execute("TIME")))
        self.opened_at = self.clock.now()
        self.server_started_at = self.opened_at - await uptime(self._server)
        self._client = await follow_cluster(self._server, self.settings.url, tls=self.settings.tls)


def _unix_time(told: Sequence[bytes]) -> float:
    seconds, microseconds = told
    return int(seconds) + int(microseconds) / 1e6
