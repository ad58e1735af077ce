"""Waits that share a timer: each ends at its own time, whoever leaves meanwhile."""

from __future__ import annotations

import asyncio
import gc
import weakref
from functools import partial

import pytest

from async_processor.timeouts import Timeouts


def waiting(timeouts: Timeouts, timeout: float) -> tuple[asyncio.Future[None], asyncio.Task[None]]:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    return future, asyncio.create_task(bounded(timeouts, future, timeout))


async def bounded(timeouts: Timeouts, future: asyncio.Future[None], timeout: float) -> None:
    with timeouts.limit(timeout):
        await future


def _note(ended: list[str], name: str, _task: asyncio.Task[None]) -> None:
    ended.append(name)


async def test_each_wait_ends_at_its_own_time() -> None:
    timeouts = Timeouts()
    ended = list[str]()
    tasks = {}
    for name, timeout in {"third": 0.06, "first": 0.0, "second": 0.03, "never": 1e6}.items():
        _, tasks[name] = waiting(timeouts, timeout)
        tasks[name].add_done_callback(partial(_note, ended, name))
    for name in ("third", "first", "second"):
        with pytest.raises(TimeoutError):
            await tasks[name]
    await asyncio.sleep(0)
    assert ended == ["first", "second", "third"]
    tasks["never"].cancel()


async def test_a_timer_that_rings_for_who_has_left_rings_again_for_who_is_next() -> None:
    timeouts = Timeouts()
    _, slow = waiting(timeouts, 0.03)
    early, quick = waiting(timeouts, 0.01)
    early.set_result(None)
    await quick
    with pytest.raises(TimeoutError):
        await slow


async def test_who_is_cut_off_leaves_the_others_their_time() -> None:
    timeouts = Timeouts()
    _, cut_off = waiting(timeouts, 1e6)
    _, other = waiting(timeouts, 0.01)
    await asyncio.sleep(0)
    cut_off.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cut_off
    with pytest.raises(TimeoutError):
        await other


async def test_a_task_that_is_cut_off_when_its_time_is_up_goes_on_being_cancelled() -> None:
    timeouts = Timeouts()
    _, task = waiting(timeouts, 0.0)
    await asyncio.sleep(0)
    timeouts._ring()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelling() == 1


async def test_after_its_time_a_task_is_not_cancelled_any_more() -> None:
    timeouts = Timeouts()
    with pytest.raises(TimeoutError), timeouts.limit(0.01) as limit:
        await asyncio.Event().wait()
    assert limit.expired
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()


async def test_of_two_limits_the_one_whose_time_is_up_ends_the_work() -> None:
    timeouts = Timeouts()
    with (
        pytest.raises(TimeoutError),
        timeouts.limit(0.01) as outer,
        timeouts.limit(1e6) as inner,
    ):
        await asyncio.Event().wait()
    assert outer.expired
    assert not inner.expired


async def test_an_error_that_comes_of_the_end_of_the_time_is_not_hidden() -> None:
    async def broken_off() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise OSError("broken off") from None

    with pytest.raises(OSError, match="broken off"), Timeouts().limit(0.01) as limit:
        await broken_off()
    assert limit.expired


async def test_a_wait_may_begin_when_all_others_are_over() -> None:
    timeouts = Timeouts()
    for _ in range(2):
        with pytest.raises(TimeoutError):
            await waiting(timeouts, 0.01)[1]


async def test_nothing_keeps_the_timer_when_all_waits_are_over() -> None:
    timeouts = Timeouts()
    kept = weakref.ref(timeouts)
    future, task = waiting(timeouts, 1e6)
    await asyncio.sleep(0)
    future.set_result(None)
    await task
    del timeouts, future, task
    gc.collect()
    assert kept() is None
