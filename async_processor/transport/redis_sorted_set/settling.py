"""Settlements of one queue: what comes in while a call is under way makes up the next call."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from async_processor.errors import BrokerRefused, BrokerUnavailable
from async_processor.redis_io.errors import AccessDenied, AnswerLost
from async_processor.telemetry.logs import get_logger
from async_processor.transport.base import Delivery, Outcome, Settlement
from async_processor.transport.redis_sorted_set.entries import Entry, entry, without_place
from async_processor.transport.redis_sorted_set.link import Link, pauses
from async_processor.transport.redis_sorted_set.settle_call import Answers, SettleCalls

_ENTRIES_AT_ONCE: Final = 256
_BYTES_AT_ONCE: Final = 4 * 2**20
_GONE: Final = 0
_DONE: Final = 1
_MOVED: Final = 2

_log = get_logger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class _Pending:
    """A settlement on its way.

    `uncertain`: it was sent, and may have been executed. `alone`: it may be what Redis refuses a
    whole batch for. `buried`: no list took its result, which goes to a dead letter.
    """

    delivery: Delivery
    entry: Entry
    future: asyncio.Future[Settlement]
    uncertain: bool = False
    alone: bool = False
    buried: bool = False


class QueueSettlements:
    """Settles claims of one queue, for as long as the broker needs to take them."""

    def __init__(self, link: Link, queue_name: str) -> None:
        self._link = link
        self._queue_name = queue_name
        self._calls = SettleCalls(link, queue_name)
        self._pending: deque[_Pending] = deque()
        self._sender: asyncio.Task[None] | None = None

    async def settle(self, delivery: Delivery, outcome: Outcome) -> Settlement:
        """Execute an outcome. Cancelling the caller does not take it back.

        GONE, too, when Redis refuses it or `flush` gives it up: then nothing was written, and the
        message returns to the queue when its lease ends.
        """
        future: asyncio.Future[Settlement] = asyncio.get_running_loop().create_future()
        written = entry(delivery, outcome, self._link.clock.now())
        self._pending.append(_Pending(delivery=delivery, entry=written, future=future))
        if self._sender is None:
            self._sender = asyncio.create_task(self._send(), name=f"settle {self._queue_name}")
        return await future  # cancelling it cancels nothing else

    async def flush(self, timeout: float) -> None:
        """Wait until everything is settled; after `timeout` seconds give the rest up."""
        if self._sender is None:
            return
        await asyncio.wait([self._sender], timeout=timeout)
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.wait([self._sender])

    async def _send(self) -> None:
        try:
            while self._pending:
                await asyncio.sleep(0)  # whoever is ready to settle now comes along
                await self._settle_batch(self._take_batch())
        finally:
            self._sender = None
            self._give_up()

    def _take_batch(self) -> list[_Pending]:
        batch = [self._pending.popleft()]
        size = batch[0].entry.size
        while self._pending and not (batch[-1].alone or self._pending[0].alone):
            if len(batch) == _ENTRIES_AT_ONCE or size >= _BYTES_AT_ONCE:
                break
            batch.append(self._pending.popleft())
            size += batch[-1].entry.size
        return batch

    async def _settle_batch(self, batch: list[_Pending]) -> None:
        try:
            answers = await self._until_answered(batch)
        except BrokerRefused as error:
            self._part(batch, error)
            return
        except BaseException:
            self._pending.extendleft(reversed(batch))
            raise
        if not answers.confirmed:
            _log.warning("settlements_unconfirmed", queue_name=self._queue_name, count=len(batch))
        for pending, answer in zip(batch, answers.each, strict=True):
            self._take_answer(pending, answer, confirmed=answers.confirmed)

    async def _until_answered(self, batch: list[_Pending]) -> Answers:
        """Send the same batch until the broker takes it; a new password may be on its way, too."""
        for pause in pauses():
            try:
                return await self._call(batch)
            except (BrokerUnavailable, AccessDenied) as error:
                for pending in batch:
                    pending.uncertain |= isinstance(error, AnswerLost)
                _log.warning("settlement_delayed", queue_name=self._queue_name, error=str(error))
            await self._link.clock.sleep(pause)
        raise AssertionError("there is always another pause")

    async def _call(self, batch: list[_Pending]) -> Answers:
        answers = await self._calls.run([pending.entry for pending in batch])
        if self._calls.apart:
            await self._forget_settled(batch, answers.each)
        return answers

    async def _forget_settled(
        self, batch: Sequence[_Pending], answers: Sequence[int | bytes]
    ) -> None:
        """What settle.lua does itself where all keys are in reach.

        If this fails the batch is sent again, and "gone" then means that it is settled.
        """
        settled = []
        for pending, answer in zip(batch, answers, strict=True):
            pending.uncertain |= answer in (_DONE, _MOVED)
            if pending.uncertain and not isinstance(answer, bytes):
                settled.append(pending.entry)
        await asyncio.gather(*map(self._calls.clean_up, settled))

    def _part(self, batch: list[_Pending], error: BrokerRefused) -> None:
        """One of them may be to blame, and some may be settled already: ask for each alone."""
        if len(batch) == 1:
            self._abandon(batch[0], str(error))
            return
        for pending in batch:
            pending.uncertain = pending.alone = True
        self._pending.extendleft(reversed(batch))

    def _take_answer(self, pending: _Pending, answer: int | bytes, *, confirmed: bool) -> None:
        if isinstance(answer, bytes):
            self._refused(pending, answer.decode(errors="replace"))
            return
        if answer == _MOVED:
            _log.error("settled_elsewhere", queue_name=self._queue_name, what=pending.entry.what)
        if answer == _GONE and not pending.uncertain:
            _conclude(pending, Settlement.GONE)
            return
        # What was written by an earlier call, whose answer was lost, nobody confirms any more.
        told = not self._link.settings.confirm.replicas or answer != _GONE
        done = Settlement.BURIED if pending.buried else Settlement.DONE
        _conclude(pending, done if confirmed and told else Settlement.UNCONFIRMED)

    def _refused(self, pending: _Pending, fault: str) -> None:
        now = self._link.clock.now()
        second_best = without_place(pending.entry, pending.delivery, fault, now)
        if second_best is None:
            self._abandon(pending, fault)
            return
        pending.entry, pending.buried = second_best, True
        self._pending.append(pending)

    def _give_up(self) -> None:
        while self._pending:
            self._abandon(self._pending.popleft(), "stopped while the broker was away")

    def _abandon(self, pending: _Pending, reason: str) -> None:
        what = pending.entry.what
        _log.error("settlement_abandoned", queue_name=self._queue_name, what=what, error=reason)
        _conclude(pending, Settlement.GONE)


def _conclude(pending: _Pending, settlement: Settlement) -> None:
    if not pending.future.done():
        pending.future.set_result(settlement)
