"""Each settlement of a batch hears its own answer, whenever the sender is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st

from async_processor.testing.clock import ManualClock
from async_processor.transport.base import Delivery, Settlement
from async_processor.transport.redis_sorted_set.entries import Entry
from async_processor.transport.redis_sorted_set.link import Link
from async_processor.transport.redis_sorted_set.sending import Pending, Sender
from async_processor.transport.redis_sorted_set.settle_call import Answers, SettleCalls
from async_processor.transport.settings import RedisSettings
from async_processor.wire import envelope

SAYS = {1: Settlement.DONE, 0: Settlement.GONE}


class Broker:
    """Answers at once; `told` is what it has said, by token."""

    apart = False

    def __init__(self, answers: Sequence[int]) -> None:
        self._answers = answers
        self.told: dict[str, int] = {}

    async def run(self, entries: Sequence[Entry]) -> Answers:
        for entry in entries:
            assert entry.token not in self.told
            self.told[entry.token] = self._answers[int(entry.token)]
        return Answers(each=[self.told[entry.token] for entry in entries], confirmed=True)


def pending(number: int) -> Pending:
    token = str(number)
    delivery = Delivery(
        queue_name="q",
        token=token,
        body=b"{}",
        score=1.0,
        deliveries=0,
        claimed_at=0.0,
        message=envelope.examine(b"{}"),
    )
    future = asyncio.get_running_loop().create_future()
    return Pending(delivery=delivery, entry=Entry(token=token, what="release"), future=future)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([0, 1]), min_size=1, max_size=300), st.integers(0, 15))
def test_what_is_answered_hears_it_and_the_rest_is_gone(answers: list[int], turns: int) -> None:
    async def play() -> None:
        broker = Broker(answers)
        link = SimpleNamespace(settings=RedisSettings(), clock=ManualClock())
        sender = Sender(cast("Link", link), "q", cast("SettleCalls", broker))
        sent = [pending(number) for number in range(len(answers))]
        for each in sent:
            sender.send(each)
        for _ in range(turns):
            await asyncio.sleep(0)
        await sender.flush(0)
        for each in sent:
            answer = broker.told.get(each.entry.token, 0)
            assert each.future.done()
            assert each.future.result() is SAYS[answer]

    asyncio.run(play())


async def test_a_batch_is_concluded_over_several_turns() -> None:
    link = SimpleNamespace(settings=RedisSettings(), clock=ManualClock())
    sender = Sender(cast("Link", link), "q", cast("SettleCalls", Broker([1] * 200)))
    sent = [pending(number) for number in range(200)]
    for each in sent:
        sender.send(each)
    most, before = 0, 0
    while before < len(sent):
        await asyncio.sleep(0)
        done = sum(each.future.done() for each in sent)
        most, before = max(most, done - before), done
    assert most < 50
