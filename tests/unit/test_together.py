"""What all processes show as one, with lives that answer only when they may."""

from __future__ import annotations

import asyncio
from typing import Any

from async_processor.processes.berth import Berth
from async_processor.processes.life import Life
from async_processor.processes.orders import Orders
from async_processor.processes.together import Together
from async_processor.telemetry.metrics import Metrics

NOTHING: dict[str, Any] = {"queues": [], "pools": []}


class Hanging(Life):
    """Does not answer before it has been asked for both its status and its fault."""

    def __init__(self) -> None:
        super().__init__((), Orders(settings="", processes=1, rank=0, level=""), lambda: None)
        self._unasked = {"status", "fault"}
        self._asked_for_both = asyncio.Event()

    async def ask(self, name: str, content: Any = None, **_how: Any) -> Any:
        self._unasked.discard(name)
        if not self._unasked:
            self._asked_for_both.set()
        await self._asked_for_both.wait()
        return NOTHING if name == "status" else ""


async def test_a_process_that_hangs_is_waited_for_once() -> None:
    hanging = Hanging()
    berth = Berth(1, lambda: hanging, lambda *_: None)
    berth.life = hanging
    async with asyncio.timeout(60):
        status = await Together([berth], Metrics()).status()
    assert [process["ready"] for process in status["processes"]] == [True]
