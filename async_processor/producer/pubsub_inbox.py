"""Results on a Pub/Sub subscription: handed to those who wait for them, or read one by one."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Self

from async_processor.errors import BrokerRefused, BrokerUnavailable
from async_processor.google_io.client import PULL_TIMEOUT, PubSubClient
from async_processor.google_io.values import Received
from async_processor.producer.patience import Patience
from async_processor.producer.taken import Taken

LEASE: Final = 60
"""Seconds that a result stays with its reader before it is delivered again; renewed meanwhile."""

ELSEWHERE: Final = 2
"""Seconds, at most, after which a result that is another reader's is delivered again: often at
once, to a reader that waits already, and not always, or two would only hand it to and fro."""

KEPT: Final = 10_000
"""Results that may wait here for somebody to ask for them."""

EMPTY_AFTER: Final = 5.0
"""Seconds without a result after which a subscription counts as read."""

_BATCH: Final = 100


class Subscribed:
    """One subscription of results, as its readers need it."""

    def __init__(self, client: PubSubClient, name: str, patience: Patience) -> None:
        self.name = name
        self._client = client
        self._patience = patience

    async def pull(self, seconds: float = PULL_TIMEOUT) -> list[Received]:
        """The next results, after so many seconds at most once the service is there.

        Raises BrokerUnavailable when it was away for too long.
        """
        return await self._patience(lambda: self._client.pull(self.name, _BATCH, seconds))

    def taken(self, one: Received) -> Taken:
        """A result in a reader's keeping."""
        return Taken(one.data, partial(self.acknowledge, one.ack_id))

    async def acknowledge(self, ack_id: str) -> None:
        """A result was dealt with; raises BrokerUnavailable."""
        await self._patience(lambda: self._client.acknowledge(self.name, [ack_id]))

    async def keep(self, results: Iterable[Received], seconds: int) -> None:
        """Renew leases, or with 0 give results back; what fails is delivered again."""
        ack_ids = [one.ack_id for one in results]
        for start in range(0, len(ack_ids), _BATCH):
            try:
                await self._client.modify(self.name, ack_ids[start : start + _BATCH], seconds)
            except (BrokerUnavailable, BrokerRefused):
                return


class Inbox:
    """The results of one producer's requests, by the request's id.

    Pulls only while somebody waits. What comes for nobody is kept for whoever asks later. On a
    subscription that is `shared` with other readers only what is expected is kept, and the rest is
    given back to them.
    """

    def __init__(self, subscribed: Subscribed, *, shared: bool) -> None:
        self._subscribed = subscribed
        self._shared = shared
        self._expected: dict[str, None] = {}
        self._waiting: dict[str, asyncio.Future[Taken]] = {}
        self._waiters: Counter[str] = Counter()
        self._kept: dict[str, Received] = {}
        self._task: asyncio.Task[None] | None = None

    def expect(self, request_ids: Iterable[str]) -> None:
        """Somebody here may ask for these requests' results; of many the latest are remembered,
        and the others' come when they are asked for."""
        if self._shared:
            self._expected.update(dict.fromkeys(request_ids))
        while len(self._expected) > KEPT:
            del self._expected[next(iter(self._expected))]

    async def take(self, request_id: str) -> Taken:
        """Wait for a request's result; raises BrokerUnavailable."""
        kept = self._kept.pop(request_id, None)
        if kept is not None:
            return self._subscribed.taken(kept)
        answer = self._waiting.setdefault(request_id, asyncio.get_running_loop().create_future())
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="results")
        self._waiters[request_id] += 1
        try:
            return await asyncio.shield(answer)
        finally:
            self._waiters[request_id] -= 1
            if not self._waiters[request_id]:
                del self._waiters[request_id]
                self._waiting.pop(request_id, None)

    async def _run(self) -> None:
        renewing = asyncio.create_task(self._renew(), name="leases of results")
        try:
            while self._waiting:
                pulled = await self._subscribed.pull()
                foreign = [one for one in pulled if not self._sorted(one)]
                await self._subscribed.keep(foreign, random.randint(0, ELSEWHERE))
        except Exception as error:  # noqa: BLE001 - it is theirs who wait
            for answer in self._waiting.values():
                answer.set_exception(error)
            self._waiting.clear()
        finally:
            renewing.cancel()

    def _sorted(self, one: Received) -> bool:
        """Whether it is for somebody here, or may be."""
        request_id = one.attributes.get("id", "")
        answer = self._waiting.pop(request_id, None)
        mine = not self._shared or request_id in self._expected
        if answer is not None and not answer.done():
            self._expected.pop(request_id, None)
            answer.set_result(self._subscribed.taken(one))
        elif mine and len(self._kept) < KEPT:
            self._expected.pop(request_id, None)
            self._kept[request_id] = one
        else:
            return False
        return True

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(LEASE / 3)
            await self._subscribed.keep(self._kept.values(), LEASE)

    async def close(self) -> None:
        """Give back what nobody asked for."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._subscribed.keep(self._kept.values(), 0)


class PubSubResults:
    """The results of one subscription, as an asynchronous iterator.

    Leave it by `async with` or `close`: what was not acknowledged is given back at once. Without
    `follow` it ends when nothing has come for five seconds.
    """

    def __init__(
        self,
        subscribed: Subscribed,
        *,
        follow: bool,
        closed: Callable[[PubSubResults], None],
    ) -> None:
        self._subscribed = subscribed
        self._follow = follow
        self._closed = closed
        self._ready: deque[Received] = deque()
        self._handed_out: dict[str, Received] = {}
        """By ack id: what is not acknowledged yet."""
        self._pull: asyncio.Task[list[Received]] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop reading."""
        self._closed(self)
        if self._pull is not None:
            self._pull.cancel()
            await asyncio.gather(self._pull, return_exceptions=True)
        await self._subscribed.keep([*self._ready, *self._handed_out.values()], 0)
        self._ready.clear()
        self._handed_out.clear()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Taken:
        loop = asyncio.get_running_loop()
        give_up = loop.time() + EMPTY_AFTER
        while not self._ready:
            left = PULL_TIMEOUT if self._follow else give_up - loop.time()
            if left <= 0:
                raise StopAsyncIteration
            self._ready.extend(await self._pulled(left))
        one = self._ready.popleft()
        self._handed_out[one.ack_id] = one
        return Taken(one.data, partial(self._acknowledge, one.ack_id))

    async def _pulled(self, seconds: float) -> list[Received]:
        """A pull ends by itself and is not cut short, which may lease results to nobody: it goes on
        if who waits for it is cancelled."""
        if self._pull is None:
            self._pull = asyncio.create_task(self._subscribed.pull(seconds), name="pull results")
        await asyncio.wait({self._pull})
        pulled, self._pull = self._pull, None
        return pulled.result()

    async def _acknowledge(self, ack_id: str) -> None:
        await self._subscribed.acknowledge(ack_id)
        self._handed_out.pop(ack_id, None)
