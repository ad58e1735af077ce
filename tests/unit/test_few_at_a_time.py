"""Thousands of things to set going do not keep the loop from everything else."""

from __future__ import annotations

import asyncio

import pytest

from async_processor.lifecycle import FEW, few_at_a_time


async def test_others_get_their_turns_in_between() -> None:
    turns_at: list[int] = []
    done = 0

    async def other() -> None:
        while True:
            turns_at.append(done)
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    async for _ in few_at_a_time(range(10 * FEW)):
        done += 1
    task.cancel()
    assert turns_at == [FEW * turn for turn in range(1, 11)]


@pytest.mark.parametrize("count", [0, 1, FEW - 1, FEW, FEW + 1])
async def test_every_item_comes_once_and_in_order(count: int) -> None:
    assert [each async for each in few_at_a_time(range(count))] == list(range(count))
