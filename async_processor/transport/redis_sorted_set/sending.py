"""Sends settlements one call after the other: what comes in meanwhile makes up the next call.

An outage is waited for. A large settlement can look like one: Redis closes the connection on an
argument or a client that it finds too large. So one without an answer goes behind the others, and
when Redis answers in between time and again, its result is replaced by one that says so.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from async_processor.errors import BrokerRefused, BrokerUnavailable
from async_processor.lifecycle import few_at_a_time
from async_processor.redis_io.errors import AccessDenied, AnswerLost
from async_processor.telemetry.logs import get_logger
from async_processor.transport.base import Delivery, Settlement
from async_processor.transport.redis_sorted_set.entries import (
    LARGE_BYTES,
    Entry,
    too_large,
    without_place,
)
from async_processor.transport.redis_sorted_set.link import Link, pauses
from async_processor.transport.redis_sorted_set.settle_call import Answers, SettleCalls

_ENTRIES_AT_ONCE: Final = 256
_LOSSES_MOST: Final = 6
"""Answers lost in a row, while Redis answered otherwise, after which an entry is too large."""
_GONE: Final = 0
_DONE: Final = 1
_MOVED: Final = 2

_log = get_logger(__name__)


class Pending(msgspec.Struct, kw_only=True, eq=False):
    """A settlement on its way.

    `uncertain`: it was sent, and may have been executed. `alone`: it may be what Redis refuses a
    whole batch for. `buried`: no list took its result, which goes to a dead letter. `losses` counts
    the answers to a large one that were lost while Redis answered otherwise.
    """

    delivery: Delivery
    entry: Entry
    future: asyncio.Future[Settlement]
    uncertain: bool = False
    alone: bool = False
    buried: bool = False
    losses: int = 0
    pauses: Iterator[float] = msgspec.field(default_factory=pauses)


class Sender:
    """Sends what it is given, for as long as the broker needs to take it."""

    def __init__(self, link: Link, queue_name: str, calls: SettleCalls) -> None:
        self._link = link
        self._queue_name = queue_name
        self._calls = calls
        self._pending: deque[Pending] = deque()
        self._sending: asyncio.Task[None] | None = None

    def send(self, pending: Pending) -> None:
        """Settle it when its turn comes; its future tells."""
        self._pending.append(pending)
        if self._sending is None:
            self._sending = asyncio.create_task(self._send(), name=f"settle {self._queue_name}")

    async def flush(self, timeout: float) -> None:
        """Wait until everything is settled; after `timeout` seconds give the rest up."""
        if self._sending is None:
            return
        await asyncio.wait([self._sending], timeout=timeout)
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])

    async def _send(self) -> None:
        try:
            while self._pending:
                await asyncio.sleep(0)  # whoever is ready to settle now comes along
                await self._settle_batch(self._take_batch())
        finally:
            self._sending = None
            self._give_up()

    def _take_batch(self) -> list[Pending]:
        batch = [self._pending.popleft()]
        size = batch[0].entry.size
        while self._pending and not (batch[-1].alone or self._pending[0].alone):
            size += self._pending[0].entry.size
            if len(batch) == _ENTRIES_AT_ONCE or size > LARGE_BYTES:
                break
            batch.append(self._pending.popleft())
        return batch

    async def _settle_batch(self, batch: list[Pending]) -> None:
        try:
            answers = await self._until_answered(batch)
        except BrokerRefused as error:
            self._part(batch, error)
            return
        except AnswerLost:
            await self._put_behind(batch[0])
            return
        except BaseException:
            self._pending.extendleft(reversed(batch))
            raise
        if not answers.confirmed:
            _log.warning("settlements_unconfirmed", queue_name=self._queue_name, count=len(batch))
        await self._take_answers(batch, answers)

    async def _take_answers(self, batch: list[Pending], answers: Answers) -> None:
        """A few at a time; what is answered is never left pending, nor sent again."""
        answered = zip(batch, answers.each, strict=True)
        try:
            async for pending, answer in few_at_a_time(answered):
                self._take_answer(pending, answer, confirmed=answers.confirmed)
        finally:
            for pending, answer in answered:
                self._take_answer(pending, answer, confirmed=answers.confirmed)

    async def _until_answered(self, batch: list[Pending]) -> Answers:
        """Send the same batch until the broker takes it; a new password may be on its way, too.

        Raises BrokerRefused, and AnswerLost if it is a large entry.
        """
        for pause in pauses():
            try:
                return await self._call(batch)
            except (BrokerUnavailable, AccessDenied) as error:
                for pending in batch:
                    pending.uncertain |= isinstance(error, AnswerLost)
                _log.warning("settlement_delayed", queue_name=self._queue_name, error=str(error))
                if isinstance(error, AnswerLost) and batch[0].entry.large:
                    raise
            await self._link.clock.sleep(pause)
        raise AssertionError("there is always another pause")

    async def _call(self, batch: list[Pending]) -> Answers:
        answers = await self._calls.run([pending.entry for pending in batch])
        if self._calls.apart:
            await self._forget_settled(batch, answers.each)
        return answers

    async def _forget_settled(
        self, batch: Sequence[Pending], answers: Sequence[int | bytes]
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

    async def _put_behind(self, pending: Pending) -> None:
        """The others come first: this one may be what Redis cannot take."""
        self._pending.append(pending)
        await self._link.clock.sleep(next(pending.pauses))
        if await self._answers():
            pending.losses += 1
        if pending.losses >= _LOSSES_MOST:
            self._reduce(pending)

    async def _answers(self) -> bool:
        try:
            await self._link.client.execute("PING")
        except (BrokerUnavailable, BrokerRefused):
            return False
        return True

    def _reduce(self, pending: Pending) -> None:
        """Without a result to be reduced it is tried again and again, behind all others."""
        entry = pending.entry
        _log.error(
            "settlement_too_large", queue_name=self._queue_name, what=entry.what, bytes=entry.size
        )
        pending.losses = 0
        pending.entry = too_large(entry) or entry

    def _part(self, batch: list[Pending], error: BrokerRefused) -> None:
        """One of them may be to blame, and some may be settled already: ask for each alone."""
        if len(batch) == 1:
            self._abandon(batch[0], str(error))
            return
        for pending in batch:
            pending.uncertain = pending.alone = True
        self._pending.extendleft(reversed(batch))

    def _take_answer(self, pending: Pending, answer: int | bytes, *, confirmed: bool) -> None:
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

    def _refused(self, pending: Pending, fault: str) -> None:
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

    def _abandon(self, pending: Pending, reason: str) -> None:
        what = pending.entry.what
        _log.error("settlement_abandoned", queue_name=self._queue_name, what=what, error=reason)
        _conclude(pending, Settlement.GONE)


def _conclude(pending: Pending, settlement: Settlement) -> None:
    if not pending.future.done():
        pending.future.set_result(settlement)
