"""What comes all at once goes on a few at a time, and nobody is left standing."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from async_processor.lifecycle import FEW
from async_processor.turnstile import Turnstile


class Crowd:
    """Comes to a turnstile; notes who passed it in which turn of the loop."""

    def __init__(self) -> None:
        self._turnstile = Turnstile()
        self._turn = 0
        self.passed: list[int] = []
        self.turns = Counter[int]()
        self.tasks: list[asyncio.Task[None]] = []

    def comes(self, count: int) -> None:
        first = len(self.tasks)
        self.tasks += [asyncio.create_task(self._pass(first + n)) for n in range(count)]

    async def _pass(self, number: int) -> None:
        await self._turnstile.take()
        self.passed.append(number)
        self.turns[self._turn] += 1

    async def next_turn(self) -> None:
        self._turn += 1
        await asyncio.sleep(0)

    async def all_passed(self) -> None:
        while not all(task.done() for task in self.tasks):
            await self.next_turn()


async def test_few_who_come_together_need_not_wait() -> None:
    crowd = Crowd()
    crowd.comes(FEW)
    await crowd.next_turn()
    assert crowd.passed == list(range(FEW))


@pytest.mark.parametrize("count", [FEW + 1, 10 * FEW])
async def test_many_who_come_together_pass_in_several_turns(count: int) -> None:
    crowd = Crowd()
    crowd.comes(count)
    await crowd.all_passed()
    assert max(crowd.turns.values()) == FEW
    assert crowd.passed == list(range(count))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 4 * FEW), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 10 * FEW)), max_size=3 * FEW),
)
def test_all_but_those_who_are_cut_off_pass_once(
    groups: list[int], cuts: list[tuple[int, int]]
) -> None:
    """`groups` come one a turn; a cut is a turn, and who is cut off in it."""

    async def play() -> None:
        crowd = Crowd()
        for turn in range(13):
            crowd.comes(groups[turn] if turn < len(groups) else 0)
            for _, number in (cut for cut in cuts if cut[0] == turn):
                if number < len(crowd.tasks):
                    crowd.tasks[number].cancel()
            await crowd.next_turn()
        await crowd.all_passed()
        through = [n for n, task in enumerate(crowd.tasks) if not task.cancelled()]
        assert sorted(crowd.passed) == through
        # Some who had to wait, and some who come when the last of them has been let in.
        assert max(crowd.turns.values(), default=0) <= 2 * FEW

    asyncio.run(play())
