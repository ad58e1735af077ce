"""A producer's way to the broker: opened once, and patient while the broker is away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from async_processor.clock import SystemClock
from async_processor.fields import Confirm, TlsSettings
from async_processor.producer.patience import OnOutage, Patience
from async_processor.redis_io.client import RedisClient
from async_processor.redis_io.confirming import check_confirming
from async_processor.redis_io.connect import follow_cluster, open_client
from async_processor.redis_io.list_watch import ListWatch
from async_processor.redis_io.producer_store import ProducerStore

_T = TypeVar("_T")

NOT_CONFIRMED: Final = Confirm()
"""No replica is asked."""
_CONCURRENT_CALLS: Final = 32


class Connection:
    """Calls are repeated for `retry_for` seconds while the broker is away, 32 at a time.

    `client`, `store` and `watch` exist from `open` to `close`.
    """

    client: RedisClient
    store: ProducerStore
    watch: ListWatch

    def __init__(
        self,
        url: str,
        tls: TlsSettings,
        retry_for: float,
        on_outage: OnOutage | None = None,
        confirm: Confirm = NOT_CONFIRMED,
    ) -> None:
        self.confirm = confirm
        self.clock = SystemClock()
        self._url = url
        self._tls = tls
        self._patience = Patience(retry_for, on_outage)
        self._calls = asyncio.Semaphore(_CONCURRENT_CALLS)
        self._opening = asyncio.Lock()
        self._open = False

    async def open(self) -> None:
        """Connect, and take over the broker's clock.

        Raises:
            ConfigurationError: the URL or the TLS files cannot be used.
            BrokerUnavailable: the broker was away for too long.
            BrokerRefused: it refuses us.
        """
        if self._open:
            return
        async with self._opening:
            if not self._open:
                await self._patience(self._connect)
                self._open = True

    async def close(self) -> None:
        """Disconnect."""
        if self._open:
            self._open = False
            await self.watch.stop()
            await self.client.close()

    async def __call__(self, attempt: Callable[[], Awaitable[_T]]) -> _T:
        """Make a call that is safe to repeat; raises BrokerUnavailable in the end."""
        async with self._calls:
            return await self._patience(attempt)

    async def _connect(self) -> None:
        client = open_client(self._url, tls=self._tls, clock=self.clock)
        try:
            self.client = await follow_cluster(client, self._url, tls=self._tls)
            check_confirming(self.client, self.confirm)
            self.store = ProducerStore(self.client)
            self.watch = ListWatch(self.client)
            self.clock.synchronise(await self.store.now())
        except BaseException:
            await client.close()
            raise
