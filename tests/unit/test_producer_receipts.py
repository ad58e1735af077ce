"""Receipts are dropped together, and none stays because the broker was away for a moment."""

from __future__ import annotations

from collections.abc import Sequence

from async_processor.errors import BrokerUnavailable
from async_processor.producer.receipts import Receipts
from async_processor.testing.eventually import until


class Broker:
    """Keeps receipts."""

    def __init__(self, *receipts: str) -> None:
        self.kept = set(receipts)
        self.away = False
        self.calls = 0

    async def drop(self, receipts: Sequence[str]) -> None:
        self.calls += 1
        if self.away:
            raise BrokerUnavailable("away")
        self.kept -= set(receipts)


async def test_those_that_follow_each_other_are_dropped_together() -> None:
    broker = Broker("a", "b")
    receipts = Receipts(broker.drop)
    receipts.spend("a")
    receipts.spend("b")
    await until(lambda: not broker.kept)
    assert broker.calls == 1


async def test_what_could_not_be_dropped_goes_with_the_next() -> None:
    broker = Broker("a", "b")
    receipts = Receipts(broker.drop)
    broker.away = True
    receipts.spend("a")
    await until(lambda: broker.calls == 1)
    broker.away = False
    receipts.spend("b")
    await until(lambda: not broker.kept)


async def test_what_could_not_be_dropped_goes_at_the_end() -> None:
    broker = Broker("a")
    receipts = Receipts(broker.drop)
    broker.away = True
    receipts.spend("a")
    await until(lambda: broker.calls == 1)
    broker.away = False
    await receipts.close()
    assert not broker.kept


async def test_a_broker_that_stays_away_holds_nobody_up() -> None:
    broker = Broker("a")
    receipts = Receipts(broker.drop)
    broker.away = True
    receipts.spend("a")
    await receipts.close()
    assert broker.calls == 1
