"""Lets what comes all at once go on a few at a time, so that nothing else is held up by it."""

from __future__ import annotations

import asyncio
from collections import deque

from async_processor.lifecycle import FEW
from async_processor.one_loop import OneLoop


class Turnstile(OneLoop):
    """Lets a few tasks pass in each turn of the loop; those that have to wait, one after the other.

    When thousands of calls end at the same moment, what follows from each would else be done in one
    turn of the loop. `few_at_a_time` is for the items of one task, this for one item of each task.
    """

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._passed = 0
        """How many passed in this turn."""

    async def take(self) -> None:
        """Wait for a turn that has room; mostly that is this one."""
        if self._waiting or self._passed == FEW:
            turn = self.loop.create_future()
            self._waiting.append(turn)
            await turn
            return
        if not self._passed:
            self.loop.call_soon(self._next_turn)
        self._passed += 1

    def _next_turn(self) -> None:
        self._passed = 0
        while self._waiting and self._passed < FEW:
            turn = self._waiting.popleft()
            if not turn.done():  # it is where the one that waited was cut off
                turn.set_result(None)
                self._passed += 1
        if self._passed:
            self.loop.call_soon(self._next_turn)
