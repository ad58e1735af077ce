"""Interactive users: streaming chats in bursts, and how long they waited."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from types import TracebackType
from typing import Self

import aiohttp
import msgspec

from async_processor.clock import Clock, SystemClock
from async_processor.lifecycle import SideTaskDied, Watch
from async_processor.sim.arrivals import Rhythm, arrivals
from async_processor.sim.percentiles import percentile

_EVENT = b"data: "
_END = b"data: [DONE]"


class ChatSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a user asks; a chat that takes longer than `timeout` seconds counts as failed."""

    model: str = "sim"
    prompt_words: int = 100
    output_tokens: int = 64
    timeout: float = 60.0


class Chat(msgspec.Struct, frozen=True, kw_only=True):
    """One finished request; monotonic seconds for `ended_at`, else durations in seconds.

    `first_token` is None where none came; `failed` is any end but a complete 200.
    """

    ended_at: float
    first_token: float | None
    latency: float
    failed: bool


class TrafficReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the users saw; times in seconds, None without a finished request."""

    requests: int
    failures: int
    first_token_p50: float | None
    first_token_p95: float | None
    first_token_p99: float | None
    latency_p50: float | None
    latency_p95: float | None
    latency_p99: float | None


def summarise(chats: Iterable[Chat]) -> TrafficReport:
    """Percentiles over the chats that succeeded."""
    chats = list(chats)
    good = [chat for chat in chats if not chat.failed]
    firsts = [chat.first_token for chat in good if chat.first_token is not None]
    latencies = [chat.latency for chat in good]
    return TrafficReport(
        requests=len(chats),
        failures=len(chats) - len(good),
        first_token_p50=percentile(firsts, 0.5),
        first_token_p95=percentile(firsts, 0.95),
        first_token_p99=percentile(firsts, 0.99),
        latency_p50=percentile(latencies, 0.5),
        latency_p95=percentile(latencies, 0.95),
        latency_p99=percentile(latencies, 0.99),
    )


class InteractiveTraffic:
    """Sends chats to `url` (a base URL) from `start` to `stop`, never waiting for an answer.

    A user who has to wait does not keep the next one away: the load is open, as live traffic is.
    """

    def __init__(
        self,
        url: str,
        *,
        rhythm: Rhythm | None = None,
        chat: ChatSettings | None = None,
        seed: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.chats: list[Chat] = []
        self._url = f"{url}/v1/chat/completions"
        self._rhythm = rhythm or Rhythm()
        self._chat = chat or ChatSettings()
        self._chance = random.Random(seed)
        self._clock = clock or SystemClock()
        self._session: aiohttp.ClientSession | None = None
        self._watch = Watch()
        self._open: set[asyncio.Task[None]] = set()

    @property
    def in_flight(self) -> int:
        """How many users are waiting for an answer now."""
        return len(self._open)

    def report(self, *, last_seconds: float | None = None) -> TrafficReport:
        """Over everything so far, or over what ended within the last seconds."""
        if last_seconds is None:
            return summarise(self.chats)
        since = self._clock.monotonic() - last_seconds
        return summarise(chat for chat in self.chats if chat.ended_at >= since)

    async def start(self) -> None:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=self._chat.timeout)
            connector = aiohttp.TCPConnector(limit=0)
            self._session = aiohttp.ClientSession(connector=connector, timeout=timeout)
            self._watch.spawn("interactive traffic", self._send(self._session))

    async def stop(self) -> None:
        """Send no more; what is under way is broken off and not counted."""
        await self._watch.stop()
        chats = tuple(self._open)
        for chat in chats:
            chat.cancel()
        await asyncio.gather(*chats, return_exceptions=True)
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def failure(self) -> SideTaskDied:
        """Wait until the traffic ends by itself, and say why."""
        return await self._watch.failure()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    async def _send(self, session: aiohttp.ClientSession) -> None:
        begin = self._clock.monotonic()
        for moment in arrivals(self._rhythm, self._chance):
            await self._clock.sleep(max(0.0, begin + moment - self._clock.monotonic()))
            task = asyncio.create_task(self._converse(session), name="interactive chat")
            self._open.add(task)
            task.add_done_callback(self._open.discard)

    async def _converse(self, session: aiohttp.ClientSession) -> None:
        began = self._clock.monotonic()
        first: float | None = None
        complete = False
        try:
            async with session.post(self._url, json=self._body()) as response:
                async for line in response.content:
                    if first is None and response.ok and line.startswith(_EVENT):
                        first = self._clock.monotonic() - began
                    complete = line.startswith(_END)
                    if complete:
                        break
        except (aiohttp.ClientError, TimeoutError):
            complete = False
        ended = self._clock.monotonic()
        self.chats.append(
            Chat(ended_at=ended, first_token=first, latency=ended - began, failed=not complete)
        )

    def _body(self) -> dict[str, object]:
        settings = self._chat
        return {
            "model": settings.model,
            "messages": [{"role": "user", "content": "word " * settings.prompt_words}],
            "max_tokens": settings.output_tokens,
            "stream": True,
        }
