"""Continuous batching as vLLM does it, as a pure model: no tasks, no sleeping, no clock of its own.

The caller drives it: `begin_step` schedules one forward pass and says how long it takes,
`end_step` says that it is over. The rules, those of vLLM's V1 scheduler:

* What arrives while a step runs is looked at when the next one begins. Until then it counts neither
  as running nor as waiting.
* Sequences that run go first; each needs room for one more token. If no block is free, the
  youngest of those that run is preempted: it loses its blocks and its computed tokens, goes to
  the head of the queue, and later computes prompt and generated tokens again.
* Then waiting sequences are let in, in order, while there is a place in the batch
  (`max_num_seqs`), room in the step's token budget and blocks for their tokens; none after a
  preemption in the same step. A long prompt is computed in chunks over several steps.
* A sequence whose tokens are all computed gains one token at the end of the step.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import msgspec

from async_processor.errors import AsyncProcessorError
from async_processor.sim.kv_cache import KvCache


class QueueFull(AsyncProcessorError):
    """As many requests are in flight as `max_num_queued_reqs` allows."""


class TooLong(AsyncProcessorError):
    """Prompt and answer together exceed `max_model_len`."""


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The shape of one pod, in vLLM's words, and its speed.

    A step takes `step_seconds`, and `step_seconds_per_sequence` more for each sequence in it, and
    its prefill tokens at `prefill_tokens_per_second`. `max_num_queued_reqs` bounds all requests in
    flight, those that run included, as vLLM's does; None queues without end.

    Raises:
        ValueError: a number is not above 0, or one sequence of `max_model_len` tokens would not
            fit into the cache.
    """

    max_num_seqs: int = 32
    max_num_batched_tokens: int = 2048
    max_model_len: int = 2048
    block_size: int = 16
    num_gpu_blocks: int = 1024
    max_num_queued_reqs: int | None = None
    prefill_tokens_per_second: float = 8000.0
    step_seconds: float = 0.02
    step_seconds_per_sequence: float = 0.0002

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            number = getattr(self, name)
            if number is not None and not number > 0:
                raise ValueError(f"{name} must be above 0, not {number}")
        capacity = KvCache(blocks=self.num_gpu_blocks, block_size=self.block_size).capacity
        if self.max_model_len > capacity:
            raise ValueError(
                f"max_model_len is {self.max_model_len}, but num_gpu_blocks and block_size make "
                f"room for {capacity} tokens only"
            )


@dataclass(eq=False, slots=True, kw_only=True)
class Sequence:
    """One request in the engine. Written by the engine alone. Times are monotonic seconds."""

    prompt_tokens: int
    output_tokens: int
    arrived_at: float
    scheduled_at: float | None = None
    generated: int = 0
    computed: int = 0
    chunk: int = 0

    @property
    def known(self) -> int:
        """Tokens of prompt and answer so far; all of them must be computed to gain another."""
        return self.prompt_tokens + self.generated

    @property
    def finished(self) -> bool:
        return self.generated >= self.output_tokens


class Engine:
    """One GPU's batch, queue and cache."""

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        self.preemptions = 0
        self._cache = KvCache(blocks=settings.num_gpu_blocks, block_size=settings.block_size)
        self._arrived: deque[Sequence] = deque()
        """Since the last step began."""
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def in_flight(self) -> int:
        return self.running + self.waiting + len(self._arrived)

    @property
    def kv_usage(self) -> float:
        return self._cache.usage

    def submit(self, *, prompt_tokens: int, output_tokens: int, now: float) -> Sequence:
        """Queue a request at monotonic time `now`; raises QueueFull and TooLong."""
        limit = self.settings.max_num_queued_reqs
        if limit is not None and self.in_flight >= limit:
            raise QueueFull
        if prompt_tokens + output_tokens > self.settings.max_model_len:
            raise TooLong(
                f"This model's maximum context length is {self.settings.max_model_len} tokens; "
                f"{prompt_tokens} in the prompt and {output_tokens} in the answer are too many"
            )
        sequence = Sequence(
            prompt_tokens=prompt_tokens, output_tokens=output_tokens, arrived_at=now
        )
        self._arrived.append(sequence)
        return sequence

    def abort(self, sequence: Sequence) -> None:
        """Forget a sequence, also in mid-step; its place and its blocks are free at once."""
        if sequence in self._running:
            self._leave(sequence)
        for line in (self._arrived, self._waiting):
            if sequence in line:
                line.remove(sequence)

    def begin_step(self, now: float) -> float | None:
        """Schedule a forward pass; returns its duration in seconds, None with nothing to do."""
        self._waiting.extend(self._arrived)
        self._arrived.clear()
        budget = self.settings.max_num_batched_tokens
        preempted, budget = self._schedule_running(budget)
        if not preempted:
            self._schedule_waiting(budget, now)
        return self._duration() if self._running else None

    def end_step(self) -> list[Sequence]:
        """End the pass; returns the sequences that gained a token. The finished ones are gone."""
        gained = [sequence for sequence in self._running if self._advance(sequence)]
        for sequence in gained:
            if sequence.finished:
                self._leave(sequence)
        return gained

    def _schedule_running(self, budget: int) -> tuple[bool, int]:
        preempted = False
        position = 0
        while position < len(self._running):
            sequence = self._running[position]
            sequence.chunk = min(sequence.known - sequence.computed, budget)
            while not self._cache.reserve(sequence, sequence.computed + sequence.chunk):
                preempted = True
                if self._preempt_youngest() is sequence:
                    break
            else:
                budget -= sequence.chunk
                position += 1
        return preempted, budget

    def _preempt_youngest(self) -> Sequence:
        victim = self._running[-1]
        self._leave(victim)
        victim.computed = 0
        self._waiting.appendleft(victim)
        self.preemptions += 1
        return victim

    def _schedule_waiting(self, budget: int, now: float) -> None:
        while self._waiting and budget > 0 and self.running < self.settings.max_num_seqs:
            sequence = self._waiting[0]
            sequence.chunk = min(sequence.known, budget)
            if not self._cache.reserve(sequence, sequence.chunk):
                return
            self._running.append(self._waiting.popleft())
            if sequence.scheduled_at is None:
                sequence.scheduled_at = now
            budget -= sequence.chunk

    def _duration(self) -> float:
        prefill = sum(sequence.chunk for sequence in self._running if sequence.chunk > 1)
        return (
            self.settings.step_seconds
            + self.settings.step_seconds_per_sequence * self.running
            + prefill / self.settings.prefill_tokens_per_second
        )

    @staticmethod
    def _advance(sequence: Sequence) -> bool:
        """Take over what the step computed; whether that made a new token."""
        computed, sequence.chunk = sequence.chunk, 0
        sequence.computed += computed
        if not computed or sequence.computed < sequence.known:
            return False
        sequence.generated += 1
        return True

    def _leave(self, sequence: Sequence) -> None:
        self._running.remove(sequence)
        self._cache.free(sequence)
