"""Waits that share a timer: each ends at its own time, whoever leaves meanwhile."""

from __future__ import annotations

import asyncio
import gc
import weakref
from functools import partial

import pytest

from async_processor.dispatch.timeouts import Timeouts


def waiting(timeouts: Timeouts, timeout: float) -> tuple[asyncio.Future[None], asyncio.Task[None]]:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    return future, asyncio.create_task(timeouts.wait(future, timeout))


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
