"""The batching model behaves like vLLM in what a gate reads: batch, queue, cache, preemption."""

from __future__ import annotations

import pytest

from async_processor.sim.engine import Engine, EngineSettings, QueueFull, Sequence, TooLong

SMALL = EngineSettings(
    max_num_seqs=4, block_size=32, num_gpu_blocks=49, max_model_len=512, step_seconds=0.01
)


class Bench:
    """An engine under a manual clock, and what a scraper sees of it after every step."""

    def __init__(self, settings: EngineSettings) -> None:
        self.engine = Engine(settings)
        self.now = 0.0
        self.seen: list[tuple[int, int, float]] = []

    def submit(self, *, prompt: int = 16, output: int = 400) -> Sequence:
        return self.engine.submit(prompt_tokens=prompt, output_tokens=output, now=self.now)

    def step(self) -> bool:
        duration = self.engine.begin_step(self.now)
        if duration is None:
            return False
        self.now += duration
        self.seen.append((self.engine.running, self.engine.waiting, self.engine.kv_usage))
        self.engine.end_step()
        return True

    def run(self) -> None:
        while self.step():
            pass


def test_a_saturated_small_pod_looks_like_the_real_one() -> None:
    bench = Bench(SMALL)
    sequences = [bench.submit() for _ in range(30)]
    bench.step()
    assert (bench.engine.running, bench.engine.waiting) == (4, 26)

    bench.run()

    assert all(sequence.generated == 400 for sequence in sequences)
    assert bench.engine.preemptions > 0
    assert max(running for running, _, _ in bench.seen) == 4
    busy = [usage for running, waiting, usage in bench.seen if running == 4 and waiting > 0]
    assert min(busy) <= 0.25
    assert 0.91 <= max(busy) <= 1.0
    assert bench.engine.kv_usage == 0
    assert (bench.engine.running, bench.engine.waiting) == (0, 0)


def test_what_arrives_in_mid_step_does_not_wait_until_the_next_one_has_no_place_for_it() -> None:
    bench = Bench(SMALL)
    engine = bench.engine
    bench.submit()
    engine.begin_step(bench.now)
    late = [bench.submit() for _ in range(4)]
    assert (engine.running, engine.waiting, engine.in_flight) == (1, 0, 5)
    engine.abort(late.pop())
    engine.end_step()
    bench.step()
    assert (engine.running, engine.waiting, engine.in_flight) == (4, 0, 4)
    bench.submit()
    bench.step()
    assert (engine.running, engine.waiting, engine.in_flight) == (4, 1, 5)


def test_cache_use_grows_with_the_tokens_generated() -> None:
    bench = Bench(SMALL)
    bench.submit(prompt=32, output=65)
    usages = []
    while bench.step():
        usages.append(round(bench.seen[-1][2] * 48))
    assert usages[0] == 1
    assert usages == sorted(usages)
    assert usages[-1] == 3


def test_the_youngest_is_preempted_and_computes_its_tokens_again() -> None:
    settings = EngineSettings(
        max_num_seqs=2, block_size=10, num_gpu_blocks=7, max_model_len=60, step_seconds=0.01
    )
    bench = Bench(settings)
    oldest, youngest = bench.submit(prompt=20, output=30), bench.submit(prompt=20, output=30)
    while not bench.engine.preemptions:
        assert bench.step()
    assert bench.engine.running == 1
    assert youngest.computed == 0
    assert youngest.generated > 0
    assert oldest.computed > 0
    generated = youngest.generated
    bench.run()
    assert youngest.generated == oldest.generated == 30
    assert generated < 30


def test_who_was_preempted_comes_before_those_that_wait() -> None:
    settings = EngineSettings(
        max_num_seqs=2, block_size=10, num_gpu_blocks=7, max_model_len=60, step_seconds=0.01
    )
    bench = Bench(settings)
    bench.submit(prompt=20, output=30)
    preempted = bench.submit(prompt=20, output=30)
    last = bench.submit(prompt=20, output=30)
    bench.run()
    assert preempted.finished
    assert last.finished
    assert preempted.scheduled_at is not None
    assert last.scheduled_at is not None
    assert preempted.scheduled_at < last.scheduled_at


def test_without_a_free_block_a_request_waits_although_the_batch_has_room() -> None:
    settings = EngineSettings(max_num_seqs=8, block_size=10, num_gpu_blocks=11, max_model_len=100)
    bench = Bench(settings)
    for _ in range(3):
        bench.submit(prompt=50, output=10)
    bench.step()
    assert (bench.engine.running, bench.engine.waiting) == (2, 1)


def test_a_long_prompt_is_computed_in_chunks_before_its_first_token() -> None:
    bench = Bench(EngineSettings(max_num_batched_tokens=100))
    sequence = bench.submit(prompt=250, output=2)
    bench.step()
    bench.step()
    assert sequence.generated == 0
    bench.step()
    assert sequence.generated == 1


def test_a_step_takes_longer_with_more_sequences_and_with_prefill() -> None:
    settings = EngineSettings(
        step_seconds=0.02, step_seconds_per_sequence=0.001, prefill_tokens_per_second=1000
    )
    engine = Engine(settings)
    engine.submit(prompt_tokens=100, output_tokens=10, now=0)
    assert engine.begin_step(0) == pytest.approx(0.02 + 0.001 + 0.1)
    engine.end_step()
    assert engine.begin_step(0) == pytest.approx(0.021)
    engine.end_step()
    engine.submit(prompt_tokens=1, output_tokens=10, now=0)
    assert engine.begin_step(0) == pytest.approx(0.022)


def test_an_aborted_sequence_frees_its_place_and_blocks_at_once() -> None:
    bench = Bench(SMALL)
    sequences = [bench.submit() for _ in range(6)]
    bench.engine.begin_step(0)
    for sequence in (sequences[0], sequences[5]):
        bench.engine.abort(sequence)
        bench.engine.abort(sequence)
    assert (bench.engine.running, bench.engine.waiting) == (3, 1)
    gained = bench.engine.end_step()
    assert sequences[0] not in gained
    bench.step()
    assert (bench.engine.running, bench.engine.waiting) == (4, 0)
    for sequence in sequences:
        bench.engine.abort(sequence)
    assert bench.engine.kv_usage == 0


def test_the_queue_limit_counts_those_that_run() -> None:
    bench = Bench(EngineSettings(max_num_seqs=2, max_num_queued_reqs=3))
    for _ in range(2):
        bench.submit()
    bench.step()
    bench.submit()
    with pytest.raises(QueueFull):
        bench.submit()


def test_a_request_over_the_context_length_is_refused() -> None:
    with pytest.raises(TooLong, match="512"):
        Bench(SMALL).submit(prompt=200, output=313)


def test_an_idle_engine_has_nothing_to_do() -> None:
    assert Engine(SMALL).begin_step(0) is None


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [({"max_num_seqs": 0}, "max_num_seqs"), ({"num_gpu_blocks": 49}, "768 tokens")],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, int], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        EngineSettings(**settings)
