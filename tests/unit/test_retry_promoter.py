"""When the retry queue is looked at next: the broker tells, and this process what it has added."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from async_processor.settlement.reaper import PROMOTION_INTERVAL, RetryPromoter
from async_processor.testing.clock import ManualClock
from async_processor.transport.memory import MemoryTransport
from async_processor.transport.memory_broker import MemoryBroker
from async_processor.transport.settings import MemorySettings


class Looking(MemoryTransport):
    """Says when the next retry is due, seconds from now; `meanwhile` happens during a look."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(MemorySettings(), MemoryBroker(clock))
        self.due: float | None = None
        self.meanwhile: Callable[[], None] = lambda: None

    async def promote_retries(self) -> float | None:
        self.meanwhile()
        return None if self.due is None else self.clock.now() + self.due


@pytest.fixture
def transport() -> Looking:
    return Looking(ManualClock())


@pytest.fixture
def promoter(transport: Looking) -> RetryPromoter:
    return RetryPromoter(transport)


@pytest.mark.parametrize(
    ("due", "pause"),
    [(None, PROMOTION_INTERVAL), (0.25, 0.25), (90.0, PROMOTION_INTERVAL), (-1.0, 0.0)],
)
async def test_the_broker_says_when_the_next_is_due(
    transport: Looking, promoter: RetryPromoter, due: float | None, pause: float
) -> None:
    transport.due = due
    assert await promoter.promote() == pytest.approx(pause)


async def test_what_was_written_before_a_look_is_left_to_the_broker(
    transport: Looking, promoter: RetryPromoter
) -> None:
    """However many there are: nothing has to be gone through for them."""
    promoter.expect(transport.clock.now() + 0.5)
    assert await promoter.promote() == PROMOTION_INTERVAL, "it has been promoted"
    promoter.expect(transport.clock.now() + 0.5)
    transport.due = 0.25
    assert await promoter.promote() == pytest.approx(0.25)


@pytest.mark.parametrize(("due_in", "pause"), [(0.25, 0.25), (-1.0, 0.0)])
async def test_what_is_written_during_a_look_is_not_missed(
    transport: Looking, promoter: RetryPromoter, due_in: float, pause: float
) -> None:
    """Perhaps the broker had answered before, and perhaps it is due by now."""
    transport.meanwhile = lambda: promoter.expect(transport.clock.now() + due_in)
    assert await promoter.promote() == pytest.approx(pause)
