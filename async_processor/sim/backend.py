"""Who makes the tokens of a pod: the batching model in real time, or a constant latency."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Protocol

from async_processor.clock import Clock
from async_processor.sim.engine import Engine, EngineSettings, Sequence
from async_processor.sim.pod_metrics import Load, PodMetrics

_CATCH_UP_SECONDS = 0.1


class Backend(Protocol):
    """Makes tokens. It runs as long as `run` is awaited."""

    @property
    def in_flight(self) -> int:
        """All requests that have come and not ended."""
        ...

    def load(self) -> Load:
        """What runs and waits now, as metrics show it."""
        ...

    def tokens(self, *, prompt_tokens: int, output_tokens: int) -> AsyncGenerator[int, None]:
        """How many tokens there are, each time there are more; closing it frees the slot at once.

        Raises:
            QueueFull: too many requests are in flight.
            TooLong: prompt and answer exceed the context length.
        """
        ...

    async def run(self) -> None: ...


class ConstantBackend:
    """Answers everything after `latency` seconds, whatever the load."""

    def __init__(self, latency: float, *, clock: Clock, metrics: PodMetrics) -> None:
        self._latency = latency
        self._clock = clock
        self._metrics = metrics
        self._running = 0

    @property
    def in_flight(self) -> int:
        return self._running

    def load(self) -> Load:
        return Load(running=self._running)

    async def tokens(self, *, prompt_tokens: int, output_tokens: int) -> AsyncGenerator[int, None]:
        arrived_at = self._clock.monotonic()
        self._running += 1
        try:
            if self._latency:
                await self._clock.sleep(self._latency)
            waited = self._clock.monotonic() - arrived_at
            self._metrics.first_token(queued=0.0, since_arrival=waited)
            self._metrics.finished(
                prompt_tokens=prompt_tokens, output_tokens=output_tokens, since_arrival=waited
            )
            yield output_tokens
        finally:
            self._running -= 1

    async def run(self) -> None:
        """Nothing runs by itself here."""
        await asyncio.Event().wait()


class ModelBackend:
    """Drives one engine in real time. Only this object steps the engine."""

    def __init__(self, settings: EngineSettings, *, clock: Clock, metrics: PodMetrics) -> None:
        self._engine = Engine(settings)
        self._clock = clock
        self._metrics = metrics
        self._work = asyncio.Event()
        self._gained: dict[Sequence, asyncio.Event] = {}
        self._last_token_at: dict[Sequence, float] = {}

    @property
    def in_flight(self) -> int:
        return self._engine.in_flight

    def load(self) -> Load:
        engine = self._engine
        return Load(running=engine.running, waiting=engine.waiting, kv_usage=engine.kv_usage)

    async def tokens(self, *, prompt_tokens: int, output_tokens: int) -> AsyncGenerator[int, None]:
        sequence = self._engine.submit(
            prompt_tokens=prompt_tokens, output_tokens=output_tokens, now=self._clock.monotonic()
        )
        gained = self._gained[sequence] = asyncio.Event()
        self._work.set()
        try:
            while not sequence.finished:
                await gained.wait()
                gained.clear()
                yield sequence.generated
        finally:
            self._engine.abort(sequence)
            del self._gained[sequence]
            self._last_token_at.pop(sequence, None)

    async def run(self) -> None:
        """Step the engine for ever; sleeps while there is nothing to do."""
        due = self._clock.monotonic()
        while True:
            before = self._engine.preemptions
            duration = self._engine.begin_step(self._clock.monotonic())
            self._metrics.preempted(self._engine.preemptions - before)
            if duration is None:
                self._work.clear()
                await self._work.wait()
                due = self._clock.monotonic()
                continue
            due = await self._sleep_until(due + duration)
            self._report(self._engine.end_step())

    async def _sleep_until(self, due: float) -> float:
        """A wake-up that is a little late shortens the next step, so that the speed holds."""
        await self._clock.sleep(max(0.0, due - self._clock.monotonic()))
        now = self._clock.monotonic()
        return due if now - due < _CATCH_UP_SECONDS else now

    def _report(self, gained: list[Sequence]) -> None:
        now = self._clock.monotonic()
        for sequence in gained:
            self._measure(sequence, now)
            self._gained[sequence].set()

    def _measure(self, sequence: Sequence, now: float) -> None:
        since_arrival = now - sequence.arrived_at
        last = self._last_token_at.get(sequence)
        if last is not None:
            self._metrics.next_token(now - last)
        else:
            started = now if sequence.scheduled_at is None else sequence.scheduled_at
            self._metrics.first_token(
                queued=started - sequence.arrived_at, since_arrival=since_arrival
            )
        self._last_token_at[sequence] = now
        if sequence.finished:
            self._metrics.finished(
                prompt_tokens=sequence.prompt_tokens,
                output_tokens=sequence.generated,
                since_arrival=since_arrival,
            )
